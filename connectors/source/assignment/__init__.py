"""Partitions that the group assigns to this worker, and those that it releases."""
