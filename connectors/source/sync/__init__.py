"""Configurations and ACLs of remote topics follow those of the source."""
