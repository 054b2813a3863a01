"""Which member of a group may claim leadership: anyone (``log``), or the one that ZooKeeper names (``zookeeper``)."""
