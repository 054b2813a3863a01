"""Positions that are kept outside Kafka, written again for the other cluster of a flow: checkpoints of Spark."""
