"""What becomes of a fetched batch: it passes as bytes, is repacked, rebuilt or dropped. Pure."""
