"""The connectors of a flow: what finds work and what does it."""
