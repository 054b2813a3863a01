"""Heartbeats: emitting them into the target of a pair, and reading back their copies as a flow's proof and latency."""
