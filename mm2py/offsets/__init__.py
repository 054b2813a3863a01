"""Offsets of groups on the other cluster: what was stored, which pairs are kept, where a group continues. Pure."""
