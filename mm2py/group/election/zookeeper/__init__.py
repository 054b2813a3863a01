"""The election backend ``leader.election=zookeeper``."""
