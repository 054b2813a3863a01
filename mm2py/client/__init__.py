"""A client for applications: which clusters are upstream, and where to go on reading on the other cluster.

Applications import this package. So it is light: names, record layouts and aiokafka, nothing of a worker.

Counterpart: MirrorClient and RemoteClusterUtils, Apache Kafka, connect/mirror-client. Like them it asks only the
target cluster, and reads the topics that MirrorMaker 2 or mm2py keeps there. Beyond them it knows the ledger, so it
translates any offset exactly, in both directions. docs/client.md has a consumer that fails over by it.
"""

from mm2py.client.mirror_client import MirrorClient, RemoteOffset
from mm2py.client.topic_reader import MissingTopic, ReadDenied
from mm2py.flow import ClusterAlias
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.records.ledger_record import NewerLedgerFormat
from mm2py.topics.names import DefaultReplicationPolicy, IdentityReplicationPolicy, ReplicationPolicy

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
]
