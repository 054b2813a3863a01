"""REST, metrics and health of a worker: a process of its own beside it.

Counterpart: the REST server of Kafka Connect's workers, which MirrorMaker 2's dedicated mode does not have.
"""
