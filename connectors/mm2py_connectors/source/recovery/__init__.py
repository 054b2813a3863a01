"""How a flow starts: previous producers are fenced, and partitions reconciled."""
