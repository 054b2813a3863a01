"""The group of workers that share the flows into one target cluster."""
