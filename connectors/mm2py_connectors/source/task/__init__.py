"""The source task: it carries out what the copiers of its partitions ask for."""
