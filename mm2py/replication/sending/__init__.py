"""Produce requests: one lane for each target broker, and what its answers mean."""
