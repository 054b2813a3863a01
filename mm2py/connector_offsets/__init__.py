"""The offsets of a flow's connectors as Connect's REST API shows and alters them (KIP-875)."""
