"""REST, metrics and health of a worker, served by a separate process next to the worker.

Counterpart: the REST server of Kafka Connect's workers, which MirrorMaker 2's dedicated mode does not have.
"""
