"""What the leader of a group does: it assigns partitions, and evicts and fences silent members."""
