"""A client for applications: which clusters are upstream, and where to continue reading on the other cluster.

Applications import this package, so it imports little: names, record layouts and aiokafka, but no code of a worker.
docs/client.md has a consumer that uses it to fail over.

Counterpart: MirrorClient and RemoteClusterUtils, Apache Kafka, connect/mirror-client. Like them it asks only the
target cluster, and reads the topics that MirrorMaker 2 or mm2py keeps there. In addition it reads the ledger, so it
translates any offset exactly, in both directions.
"""

from mm2py.client.mirror_client import MirrorClient, RemoteOffset
from mm2py.client.topic_reader import MissingTopic, ReadDenied
from mm2py.flow import ClusterAlias
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.records.ledger_record import NewerLedgerFormat
from mm2py.topics.names import DefaultReplicationPolicy, IdentityReplicationPolicy, ReplicationPolicy
from mm2py.topics.renaming import renaming

__all__ = [
    "Answer",
    "AnswerKind",
    "ClusterAlias",
    "DefaultReplicationPolicy",
    "IdentityReplicationPolicy",
    "MirrorClient",
    "MissingTopic",
    "NewerLedgerFormat",
    "ReadDenied",
    "RemoteOffset",
    "ReplicationPolicy",
    "renaming",
]
