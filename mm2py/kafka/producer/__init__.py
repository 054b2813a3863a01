"""Producer ids: our own, those of other producers, and how to fence them."""
