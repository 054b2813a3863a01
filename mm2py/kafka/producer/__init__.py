"""Producer ids: our own, those of others, and how one is fenced."""
