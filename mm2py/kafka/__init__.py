"""The one wire layer under everything: connections, metadata, requests."""
