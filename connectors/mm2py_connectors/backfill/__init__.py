"""Bulk backfill: a range of partitions is copied by the live flow's own connector, without a group."""
