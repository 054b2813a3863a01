"""The wire layer that all other packages use: connections, metadata, requests."""
