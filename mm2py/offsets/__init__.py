"""Offsets of groups on the other cluster: when a pair is stored, which are kept, what a checkpoint says. All pure."""
