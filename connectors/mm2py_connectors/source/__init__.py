"""The source connector: finds partitions and copies them (MM2's MirrorSourceConnector and MirrorSourceTask)."""
