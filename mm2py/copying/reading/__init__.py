"""Fetch requests: one lane for each source broker, memory and rate limits, and readers of single stretches."""
