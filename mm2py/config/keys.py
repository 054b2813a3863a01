"""The settings that work: rows of the table, by section of the example.

MirrorMaker 2's file mixes the settings of three connectors, a Connect worker and three Kafka clients; mm2py adds its
own. A default here is the one that counts. The rows of secured connections, workers' groups and REST are in
``security/keys.py``, ``groups.py`` and ``rest.py``; ``tables.py`` joins them all, with settings that do not work.
"""

from __future__ import annotations

from typing import Literal

from mm2py.config.flow_part import FlowPart
from mm2py.config.kinds import (
    HostPort,
    addresses,
    auto_offset_reset,
    boolean,
    distinct_strings,
    integer,
    java_trim,
    name,
    one_of,
    raw,
    string,
    strings,
    topic_name,
)
from mm2py.config.layers import CONNECTOR_PACKAGE
from mm2py.config.row import (
    AT_FLOW,
    AT_TOP,
    AT_TOP_AND_FLOW,
    AT_TOP_AND_TARGET,
    BY_ALL_BUT_ADMIN,
    BY_CLIENTS,
    BY_CONNECTOR,
    BY_CONSUMER,
    BY_FAMILY,
    BY_FILE,
    BY_FLOW,
    BY_PRODUCER,
    BY_RECORD_CLIENTS,
    BY_WORKER,
    Key,
    Section,
)
from mm2py.topics.filters import DEFAULT_GROUPS, DEFAULT_GROUPS_EXCLUDE, DEFAULT_TOPICS, DEFAULT_TOPICS_EXCLUDE
from mm2py.topics.renaming import RENAME_KEY
from mm2py.topics.replicas import AtMost
from mm2py.topics.topic_configs import DEFAULT_CONFIG_PROPERTIES_EXCLUDE

MEMORY_MIN_BYTES = 16 * 1024 * 1024

_LONG = integer(-(2**63), 2**63 - 1)
_COUNT = integer(0)
_POSITIVE = integer(1)
_REPLICATION_FACTOR = integer(1, 2**15 - 1, or_minus_one=True)

CLUSTERS_AND_FLOWS = Section("clusters and flows")
CLUSTERS: Key[tuple[str, ...]] = CLUSTERS_AND_FLOWS.row(
    "clusters",
    distinct_strings,
    (),
    readers=BY_FILE,
    lines=("clusters = A, B",),
    text="The aliases of all clusters. An alias becomes part of topic names: letters, digits, `_` and `-`.",
)
BOOTSTRAP_SERVERS: Key[tuple[HostPort, ...]] = CLUSTERS_AND_FLOWS.row(
    "bootstrap.servers",
    addresses,
    (),
    readers=BY_ALL_BUT_ADMIN,
    lines=(
        "A.bootstrap.servers = a.example:9092",
        "B.bootstrap.servers = b.example:9092",
    ),
    text=(
        "Where to reach each cluster: host:port, IPv6 as [::1]:9092. Connections use plain text and no user,"
        " unless the section on secured connections below says otherwise."
    ),
)
ENABLED = CLUSTERS_AND_FLOWS.row(
    "enabled",
    boolean,
    False,
    readers=BY_CONNECTOR,
    parts=(FlowPart.ON_OFF,),
    lines=("A->B.enabled = true",),
    text="Copy from A to B. Default: false.",
)
STANDBY = CLUSTERS_AND_FLOWS.row(
    "standby",
    boolean,
    False,
    readers=AT_FLOW,
    field="standby",
    lines=("##B->A.standby = true",),
    text=(
        "Only of mm2py. The flow is configured, and its workers serve its target, but it copies nothing until it is"
        " turned on. Under the identity policy two flows may lead back and forth if one of them is standby. This is"
        " only the first value: once a flow has run, what is stored on its target counts, and `mm2py dr turn`"
        " changes that."
    ),
)

WHICH_TOPICS = Section("which topics")
TOPICS: Key[tuple[str, ...]] = WHICH_TOPICS.row(
    "topics",
    strings,
    DEFAULT_TOPICS,
    readers=BY_CONNECTOR,
    parts=(
        FlowPart.TOPICS,
        FlowPart.TOPIC_ACLS,
        FlowPart.CHECKPOINTS,
        FlowPart.HEARTBEATS,
    ),
    text="Names and Java patterns; a pattern has to match the whole name. An empty list matches nothing.",
)
TOPICS_EXCLUDE: Key[tuple[str, ...]] = WHICH_TOPICS.row(
    "topics.exclude",
    strings,
    DEFAULT_TOPICS_EXCLUDE,
    readers=BY_CONNECTOR,
    parts=(
        FlowPart.TOPICS,
        FlowPart.TOPIC_ACLS,
        FlowPart.CHECKPOINTS,
        FlowPart.HEARTBEATS,
    ),
    text="Topics that are not copied although they match `topics`.",
)
HEARTBEATS_REPLICATION = WHICH_TOPICS.row(
    "heartbeats.replication.enabled",
    boolean,
    True,
    readers=BY_CONNECTOR,
    parts=(
        FlowPart.TOPICS,
        FlowPart.TOPIC_ACLS,
        FlowPart.HEARTBEATS,
    ),
    field="heartbeats_replication",
    text="Copy topics called `heartbeats`, of any number of hops, whatever the two lists say.",
)
REFRESH_TOPICS_ENABLED = WHICH_TOPICS.row(
    "refresh.topics.enabled",
    boolean,
    True,
    readers=BY_CONNECTOR,
    parts=(FlowPart.TOPICS,),
    text="Look for new topics and partitions while running. With false mm2py looks once, at start.",
)
REFRESH_TOPICS_INTERVAL = WHICH_TOPICS.row(
    "refresh.topics.interval.seconds",
    _LONG,
    600,
    readers=BY_CONNECTOR,
    parts=(FlowPart.TOPICS,),
    text=(
        "Seconds between two looks at the remote topics, and at topics that were refused; 30 at most, also if the"
        " number is higher. A negative number stops looking, as false above does. New topics and partitions have"
        " the setting below."
    ),
)
TOPICS_WATCH_INTERVAL = WHICH_TOPICS.row(
    "topics.watch.interval.ms",
    integer(100),
    2000,
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.TOPICS,),
    field="topics_watch_interval_s",
    text="Milliseconds between two looks for new topics and partitions; at least 100. Only mm2py has it.",
)

HEARTBEATS = Section(
    "heartbeats",
    (
        "Records with a timestamp that mm2py writes to B's topic `heartbeats` for the pair A->B, enabled or not,"
        " as MirrorMaker 2 does. The copy of A's heartbeats on B, `A.heartbeats`, proves that A->B works, and"
        " shows how long a record takes."
    ),
)
EMIT_HEARTBEATS_ENABLED = HEARTBEATS.row(
    "emit.heartbeats.enabled",
    boolean,
    True,
    readers=BY_CONNECTOR,
    parts=(FlowPart.HEARTBEATS,),
    text="false stops them for all pairs or for one. The topic is created all the same.",
)
EMIT_HEARTBEATS_INTERVAL = HEARTBEATS.row(
    "emit.heartbeats.interval.seconds",
    _LONG,
    1,
    readers=BY_CONNECTOR,
    parts=(FlowPart.HEARTBEATS,),
    text="Seconds between two heartbeats; a negative number stops them.",
)
HEARTBEATS_REPLICATION_FACTOR: Key[int] = HEARTBEATS.row(
    "heartbeats.topic.replication.factor",
    _REPLICATION_FACTOR,
    AtMost(3),
    readers=BY_CONNECTOR,
    parts=(FlowPart.HEARTBEATS,),
    text="Replicas of the topic `heartbeats` if mm2py creates it; -1 takes the default of the brokers.",
)

CONSUMER_GROUPS = Section(
    "consumer groups",
    (
        "mm2py emits checkpoints of A's consumer groups to B's topic `A.checkpoints.internal`: Java's"
        " RemoteClusterUtils reads there where a group may continue on B. Its ledger has the target offset of each"
        " copied record, so checkpoints are exact (docs/offsets.md). For programs that read them, and for records"
        " that MirrorMaker 2 has copied, there are offset syncs as well: some pairs of source and target offset,"
        " in MirrorMaker 2's format."
    ),
)
EMIT_OFFSET_SYNCS = CONSUMER_GROUPS.row(
    "emit.offset-syncs.enabled",
    boolean,
    True,
    readers=BY_CONNECTOR,
    parts=(
        FlowPart.OFFSET_SYNCS,
        FlowPart.CHECKPOINTS,
    ),
    text="false writes no offset syncs.",
)
OFFSET_LAG_MAX = CONSUMER_GROUPS.row(
    "offset.lag.max",
    _LONG,
    100,
    readers=BY_CONNECTOR,
    parts=(FlowPart.OFFSET_SYNCS,),
    text=(
        "After this many records of a partition there is another offset sync; with fewer, groups that are behind"
        " read more again."
    ),
)
OFFSET_SYNCS_LOCATION = CONSUMER_GROUPS.row(
    "offset-syncs.topic.location",
    one_of("source", "target"),
    "source",
    readers=BY_CONNECTOR,
    parts=(
        FlowPart.OFFSET_SYNCS,
        FlowPart.CHECKPOINTS,
    ),
    text=(
        "Where offset syncs are kept: on the source, as `mm2-offset-syncs.B.internal`, or on the target, as"
        " `mm2-offset-syncs.A.internal`. Nothing but offset syncs is ever written to the source."
    ),
)
OFFSET_SYNCS_REPLICATION_FACTOR: Key[int] = CONSUMER_GROUPS.row(
    "offset-syncs.topic.replication.factor",
    _REPLICATION_FACTOR,
    AtMost(3),
    readers=BY_CONNECTOR,
    parts=(FlowPart.OFFSET_SYNCS,),
    text="Replicas of that topic if mm2py creates it; -1 takes the default of the brokers.",
)
EMIT_CHECKPOINTS_ENABLED = CONSUMER_GROUPS.row(
    "emit.checkpoints.enabled",
    boolean,
    True,
    readers=BY_CONNECTOR,
    parts=(FlowPart.CHECKPOINTS,),
    text="false emits no checkpoints.",
)
EMIT_CHECKPOINTS_INTERVAL = CONSUMER_GROUPS.row(
    "emit.checkpoints.interval.seconds",
    _LONG,
    60,
    readers=BY_CONNECTOR,
    parts=(FlowPart.CHECKPOINTS,),
    text=(
        "Seconds between two checkpoints of a group that moves; a negative number stops them. A group that has"
        " just become idle has its last one within 5 seconds."
    ),
)
CHECKPOINTS_REPLICATION_FACTOR: Key[int] = CONSUMER_GROUPS.row(
    "checkpoints.topic.replication.factor",
    _REPLICATION_FACTOR,
    AtMost(3),
    readers=BY_CONNECTOR,
    parts=(FlowPart.CHECKPOINTS,),
    text="Replicas of the checkpoints topic if mm2py creates it; -1 takes the default of the brokers.",
)
SYNC_GROUPS_ENABLED = CONSUMER_GROUPS.row(
    "sync.group.offsets.enabled",
    boolean,
    False,
    readers=BY_CONNECTOR,
    parts=(FlowPart.CHECKPOINTS,),
    text=(
        "Commit on B, too, where each group may continue, unless it has members there. A group is never set back"
        " by this."
    ),
)
SYNC_GROUPS_INTERVAL = CONSUMER_GROUPS.row(
    "sync.group.offsets.interval.seconds",
    _LONG,
    60,
    readers=BY_CONNECTOR,
    parts=(FlowPart.CHECKPOINTS,),
    text=(
        "Seconds between two such commits of a group that moves. A group that has just become idle is moved at once."
    ),
)
SYNC_GROUPS_REWIND = CONSUMER_GROUPS.row(
    "sync.group.offsets.rewind",
    boolean,
    False,
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.CHECKPOINTS,),
    text=(
        "Set a group back on B, too, if it was set back on A and B still has what mm2py has committed. Only mm2py"
        " has it."
    ),
)
GROUPS: Key[tuple[str, ...]] = CONSUMER_GROUPS.row(
    "groups",
    strings,
    DEFAULT_GROUPS,
    readers=BY_CONNECTOR,
    parts=(FlowPart.CHECKPOINTS,),
    text="Which groups: names and Java patterns, as for topics. Only their topics that the flow copies count.",
)
GROUPS_EXCLUDE: Key[tuple[str, ...]] = CONSUMER_GROUPS.row(
    "groups.exclude", strings, DEFAULT_GROUPS_EXCLUDE, readers=BY_CONNECTOR, parts=(FlowPart.CHECKPOINTS,)
)
REFRESH_GROUPS_ENABLED = CONSUMER_GROUPS.row(
    "refresh.groups.enabled",
    boolean,
    True,
    readers=BY_CONNECTOR,
    parts=(FlowPart.CHECKPOINTS,),
    text="Take in groups that come later. With false only those that are there when the flow starts count.",
)
REFRESH_GROUPS_INTERVAL = CONSUMER_GROUPS.row(
    "refresh.groups.interval.seconds",
    _LONG,
    600,
    readers=BY_CONNECTOR,
    parts=(FlowPart.CHECKPOINTS,),
    text=(
        "New groups are found within seconds, whatever this says; a negative number stops looking, as false above does."
    ),
)

NAMES = Section("names on the target")
POLICY_CLASS = NAMES.row(
    "replication.policy.class",
    name,
    f"{CONNECTOR_PACKAGE}.DefaultReplicationPolicy",
    readers=BY_CONNECTOR,
    text=(
        "DefaultReplicationPolicy: `orders` of A is `A.orders` on B. IdentityReplicationPolicy: names stay the"
        " same; flows under it must not form a ring."
    ),
)
POLICY_SEPARATOR = NAMES.row(
    "replication.policy.separator",
    raw,
    ".",
    readers=BY_CONNECTOR,
    text="The text between alias and topic; no alias may contain it.",
)
POLICY_INTERNAL_SEPARATOR = NAMES.row(
    "replication.policy.internal.topic.separator.enabled",
    boolean,
    True,
    readers=BY_CONNECTOR,
    text="Use that separator also in the names of MirrorMaker 2's internal topics that follow the policy.",
)

TOPICS_RENAME: Key[tuple[str, ...]] = NAMES.row(
    RENAME_KEY,
    strings,
    (),
    readers=AT_FLOW,
    lines=("##A->B.topics.rename = orders -> sales.orders, (.*)\\\\.v1 -> $1",),
    text=(
        "Other names for topics on B: rules, of which the first that matches a topic's whole name counts. Left a name,"
        " in which a dot is a dot, or a Java pattern; right the new name, with $1 for the first group. The policy then"
        " makes the remote name: A.sales.orders. Heartbeats and copies of other clusters keep their names. Topics that"
        " would get one name are not both copied. Only mm2py has it; docs/names.md says what a change means."
    ),
)

NEW_TOPICS = Section("new topics on the target")
REPLICATION_FACTOR: Key[int] = NEW_TOPICS.row(
    "replication.factor",
    _REPLICATION_FACTOR,
    AtMost(2),
    readers=BY_CONNECTOR,
    parts=(FlowPart.TOPICS,),
    field="replication_factor",
    text=(
        "Replicas of each partition; -1 takes the default of B's brokers. Without this setting a topic gets 2, or"
        " 1 where B has one broker."
    ),
)
INTERNAL_REPLICATION_FACTOR: Key[int | None] = NEW_TOPICS.row(
    "internal.topics.replication.factor",
    _REPLICATION_FACTOR,
    None,
    readers=AT_TOP_AND_TARGET,
    lines=("##internal.topics.replication.factor = 3",),
    text=(
        "Replicas of every topic that mm2py and MirrorMaker 2 make for themselves, unless the topic has a setting"
        " of its own (heartbeats.topic., offset-syncs.topic., checkpoints.topic., offset.storage., status.storage."
        " and config.storage.replication.factor). -1 takes the default of the brokers. Without any of these"
        " settings such a topic gets 3, or as many as there are brokers when it is made. Only mm2py has this"
        " setting. Write it at the top or for a cluster."
    ),
)
"""For all internal topics that have no setting of their own."""
REMOTE_PARTITIONS_MAX = NEW_TOPICS.row(
    "remote.partitions.max",
    _POSITIVE,
    50_000,
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.TOPICS,),
    field="remote_partitions_max",
    text=(
        "mm2py creates or widens no topic if the flow's remote topics would then have more partitions than this"
        " in all. Remote topics of deleted source topics count. Copying continues. Only mm2py has it."
    ),
)
CONFIG_PROPERTIES_EXCLUDE: Key[tuple[str, ...]] = NEW_TOPICS.row(
    "config.properties.exclude",
    strings,
    DEFAULT_CONFIG_PROPERTIES_EXCLUDE,
    readers=BY_CONNECTOR,
    parts=(
        FlowPart.TOPIC_CONFIGS,
        FlowPart.TOPICS,
    ),
    text=(
        "Settings of a topic that its copy does not get, now or later: names and Java patterns. The two that"
        " begin with `log.` are settings of brokers. A topic's limits of timestamps, the same without `log.`, are"
        " only ever raised on its copy; name them here if they are to stay."
    ),
)
USE_DEFAULTS_FROM = NEW_TOPICS.row(
    "use.defaults.from",
    string,
    "target",
    readers=BY_FLOW,
    parts=(
        FlowPart.TOPIC_CONFIGS,
        FlowPart.TOPICS,
    ),
    at="A->B.",
    text=(
        "If a topic's setting has its default: target leaves the default of B, source writes the default of A."
        " Only for a flow."
    ),
)

IN_STEP = Section("keeping copies in step")
SYNC_CONFIGS_ENABLED = IN_STEP.row(
    "sync.topic.configs.enabled",
    boolean,
    True,
    readers=BY_CONNECTOR,
    parts=(FlowPart.TOPIC_CONFIGS,),
    text=(
        "Remote topics follow when settings of their upstream topics change. mm2py resets a setting that is made"
        " on a remote topic by hand, unless config.properties.exclude names it, or the source's brokers have that"
        " setting in their own file."
    ),
)
SYNC_CONFIGS_INTERVAL = IN_STEP.row(
    "sync.topic.configs.interval.seconds",
    _LONG,
    600,
    readers=BY_CONNECTOR,
    parts=(FlowPart.TOPIC_CONFIGS,),
    text="Seconds between two looks; the first is at once. A negative number stops looking, as false above does.",
)
SYNC_CONFIGS_DRY_RUN = IN_STEP.row(
    "sync.topic.configs.dry.run",
    boolean,
    False,
    readers=AT_TOP_AND_FLOW,
    parts=(
        FlowPart.TOPIC_CONFIGS,
        FlowPart.TOPICS,
    ),
    field="sync_topic_configs_dry_run",
    text="Only log what would change. Only mm2py has it.",
)
SYNC_ACLS_ENABLED = IN_STEP.row(
    "sync.topic.acls.enabled",
    boolean,
    True,
    readers=BY_CONNECTOR,
    parts=(FlowPart.TOPIC_ACLS,),
    text=(
        "Give remote topics the ACLs of their upstream topics. mm2py never grants the right to write, loses no"
        " DENY, and deletes no ACL. It grants nothing on a topic that is not a copy. A DENY goes by its topic's"
        " name, whether there is a copy or not. This needs DESCRIBE on the cluster resource of A, and ALTER on"
        " that of B."
    ),
)
SYNC_ACLS_INTERVAL = IN_STEP.row(
    "sync.topic.acls.interval.seconds",
    _LONG,
    600,
    readers=BY_CONNECTOR,
    parts=(FlowPart.TOPIC_ACLS,),
    text="Seconds between two looks; the first is at once. A negative number stops looking, as false above does.",
)
SYNC_ACLS_DRY_RUN = IN_STEP.row(
    "sync.topic.acls.dry.run",
    boolean,
    False,
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.TOPIC_ACLS,),
    field="sync_topic_acls_dry_run",
    text="Only log which ACLs would be created. Only mm2py has it.",
)
REMOTE_ACLS_MAX = IN_STEP.row(
    "remote.acls.max",
    _POSITIVE,
    10_000,
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.TOPIC_ACLS,),
    field="remote_acls_max",
    text=(
        "mm2py grants nothing if the flow's remote topics would then have more ACLs than this in all. ACLs that"
        " others created count. DENYs are still created. Only mm2py has it."
    ),
)

SECRETS = Section("secrets in other places")
CONFIG_PROVIDERS: Key[tuple[str, ...]] = SECRETS.row(
    "config.providers",
    strings,
    (),
    readers=BY_FILE,
    lines=("##config.providers = file, env",),
    text=(
        "Config providers, at the top of the file: names of your choice, and the class of each. Then"
        " ${file:PATH:KEY} is a key of a properties file, ${dir:PATH:FILE} the text of a file, ${env:NAME} a"
        " variable of the environment. Any setting may hold them that workers do not share: addresses,"
        " credentials, paths. They are read once, at start. See docs/security.md, also for the classes."
    ),
)
PROVIDER_SETTINGS = SECRETS.row(
    "config.providers.",
    string,
    "",
    readers=BY_FAMILY,
    lines=(
        "##config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider",
        "##config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    ),
)
SECRETS.example(
    (
        "Only read below these directories, separated by commas; the same for a DirectoryConfigProvider. Only"
        " read variables whose whole names match this pattern."
    ),
    "##config.providers.file.param.allowed.paths = /etc",
    "##config.providers.env.param.allowlist.pattern = MM2PY_.*",
)

READING = Section(
    "reading from the source",
    (
        "Write these for the source cluster. They then override the same setting of a flow (`A->B.consumer...`),"
        " as in MirrorMaker 2; `A->B.source.consumer...` overrides both."
    ),
)
AUTO_OFFSET_RESET: Key[Literal["earliest", "latest", "none"]] = READING.row(
    "auto.offset.reset",
    auto_offset_reset,
    "earliest",
    note="write earliest, latest or none",
    refuses=lambda value: java_trim(value).startswith("by_duration:"),
    readers=BY_CONSUMER,
    field="auto_offset_reset",
    at="A.consumer.",
    text=(
        "Where to start in a partition that was never copied: earliest, latest (only what is written from now"
        " on), none (stop)."
    ),
)
STARTING_GROUP = READING.row(
    "starting.offsets.group",
    string,
    "",
    readers=AT_TOP_AND_FLOW,
    field="starting_offsets_group",
    lines=("##A->B.starting.offsets.group = old-mirror",),
    text=(
        "Only of mm2py. A partition that was never copied starts where this consumer group of the source has committed,"
        " also if its remote topic is not empty: the group is that of an older mirror, such as MirrorMaker 1. Where the"
        " group has committed nothing, auto.offset.reset counts. While the group has members nothing starts."
    ),
)
ISOLATION_LEVEL = READING.row(
    "isolation.level",
    one_of("read_committed", "read_uncommitted"),
    "read_uncommitted",
    readers=BY_CONSUMER,
    at="A.consumer.",
    text="read_committed leaves out records of transactions that are open or were aborted.",
)
FETCH_MAX_BYTES = READING.row(
    "fetch.max.bytes",
    _COUNT,
    50 * 1024 * 1024,
    readers=BY_CONSUMER,
    parts=(FlowPart.READING,),
    field="fetch_max_bytes",
    at="A.consumer.",
    text="Bytes of one answer of a broker, over all its partitions.",
)
FETCH_PARTITION_MAX_BYTES: Key[int | None] = READING.row(
    "max.partition.fetch.bytes",
    _COUNT,
    None,
    readers=BY_CONSUMER,
    parts=(FlowPart.READING,),
    lines=("##A.consumer.max.partition.fetch.bytes = 1048576",),
    text=(
        "Bytes of one partition in such an answer. Without it: 1048576, and 4194304 if the answer has only one"
        " partition, as fewer requests take less CPU."
    ),
)
FETCH_MIN_BYTES = READING.row(
    "fetch.min.bytes",
    _COUNT,
    1,
    readers=BY_CONSUMER,
    parts=(FlowPart.READING,),
    field="fetch_min_bytes",
    at="A.consumer.",
    text="Bytes that a broker waits for before it answers, and for how many milliseconds at most.",
)
FETCH_MAX_WAIT = READING.row(
    "fetch.max.wait.ms",
    _COUNT,
    500,
    readers=BY_CONSUMER,
    parts=(FlowPart.READING,),
    field="fetch_max_wait_ms",
    at="A.consumer.",
)
REQUEST_TIMEOUT = READING.row(
    "request.timeout.ms",
    _POSITIVE,
    30_000,
    readers=BY_CLIENTS,
    lines=(
        "#A.consumer.request.timeout.ms = 30000",
        "#A.admin.request.timeout.ms = 30000",
    ),
    text=(
        "Milliseconds until an answer of A's brokers counts as lost. The first is for reads of records, and is"
        " more than fetch.max.wait.ms. The second is for all other requests."
    ),
)
CLIENT_RACK = READING.row(
    "client.rack",
    string,
    "",
    readers=BY_CONSUMER,
    field="client_rack",
    lines=("##A.consumer.client.rack = eu-west-1a",),
    text=(
        "The rack (zone, data centre) in which this worker stands, as A's brokers name it in broker.rack. If A"
        " has the replica.selector.class RackAwareReplicaSelector, records are then read from replicas in the same"
        " rack. Each worker has its own."
    ),
)
CLIENT_ID: Key[str | None] = READING.row(
    "client.id",
    string,
    None,
    readers=BY_RECORD_CLIENTS,
    lines=("##A.consumer.client.id = mirror",),
    text="The name under which A's brokers log and limit this client.",
)

WRITING = Section(
    "writing to the target",
    "Write these for the target cluster; `A->B.producer.override...` overrides them for one flow.",
)
COMPRESSION: Key[str | None] = WRITING.row(
    "compression.type",
    one_of("none", "gzip", "snappy", "lz4", "zstd", "producer"),
    None,
    readers=BY_PRODUCER,
    lines=("##B.producer.compression.type = zstd",),
    text=(
        "The codec of the copies: none, gzip, snappy, lz4, zstd. Without it batches keep their codec, which is"
        " the cheapest."
    ),
)
LINGER = WRITING.row(
    "linger.ms",
    integer(0, 2**63 - 1),
    0,
    readers=BY_PRODUCER,
    parts=(FlowPart.READING,),
    field="linger_s",
    at="B.producer.",
    text=(
        "Milliseconds that a partition at the end of its log rests after each read, so that the next read brings"
        " more: fewer and larger batches, and that much more latency."
    ),
)
WRITING.example(
    ("Milliseconds until an answer of B's brokers counts as lost: to written records, and to all other requests."),
    "#B.producer.request.timeout.ms = 30000",
    "#B.admin.request.timeout.ms = 30000",
)
WRITING.example(
    (
        "The name under which B's brokers log and limit this client. Workers coordinate under the same name with"
        " |cluster behind it, by default mm2py|cluster: leave room for it in quotas, see docs/security.md."
    ),
    "##B.producer.client.id = mirror",
)

POSITIONS = Section(
    "positions",
    (
        "The target keeps how far each partition is copied, where MirrorMaker 2 keeps it. As in MirrorMaker 2,"
        " `offset.storage...` at the top of the file overrides what is written for the cluster."
    ),
)
OFFSETS_TOPIC = POSITIONS.row(
    "offset.storage.topic",
    topic_name,
    "",
    readers=BY_WORKER,
    field="offsets_topic",
    lines=("#B.offset.storage.topic = mm2-offsets.A.internal",),
    text="The topic; its default names the source.",
)
"""Its default is in the layers: ``mm2-offsets.A.internal``."""
OFFSETS_PARTITIONS = POSITIONS.row(
    "offset.storage.partitions",
    integer(1, or_minus_one=True),
    25,
    readers=BY_WORKER,
    parts=(FlowPart.OWN_TOPICS,),
    field="offsets_topic_partitions",
    at="B.",
    text=(
        "Partitions and replicas of that topic, and of mm2-ledger.A.internal, if mm2py creates them; -1 takes the"
        " default of B's brokers."
    ),
)
OFFSETS_REPLICATION_FACTOR: Key[int] = POSITIONS.row(
    "offset.storage.replication.factor",
    _REPLICATION_FACTOR,
    AtMost(3),
    readers=BY_WORKER,
    parts=(FlowPart.OWN_TOPICS,),
    at="B.",
)
OFFSET_FLUSH_INTERVAL = POSITIONS.row(
    "offset.flush.interval.ms",
    integer(1, 2**63 - 1),
    60_000,
    readers=BY_WORKER,
    parts=(FlowPart.POSITIONS,),
    at="B.",
    text=(
        "Milliseconds between two positions. mm2py stores them at least every second, and at most 1,000 a second"
        " in one worker."
    ),
)

GAPS = Section(
    "gaps",
    (
        "mm2py logs and counts each gap, and keeps it on the target, in the topic in which Kafka Connect keeps"
        " its states. If a partition stops, `mm2py gaps FILE` shows it and lets it continue. Without the topic"
        " gaps are in the log only."
    ),
)
STATUS_TOPIC = GAPS.row(
    "status.storage.topic",
    topic_name,
    "",
    readers=BY_WORKER,
    field="status_topic",
    lines=("#B.status.storage.topic = mm2-status.A.internal",),
    text="The topic; its default names the source. It has to be compacted.",
)
"""Its default is in the layers: ``mm2-status.A.internal``."""
STATUS_PARTITIONS = GAPS.row(
    "status.storage.partitions",
    integer(1, or_minus_one=True),
    5,
    readers=BY_WORKER,
    parts=(FlowPart.OWN_TOPICS,),
    field="status_topic_partitions",
    at="B.",
    text="Partitions and replicas of that topic if mm2py creates it; -1 takes the default of B's brokers.",
)
STATUS_REPLICATION_FACTOR: Key[int] = GAPS.row(
    "status.storage.replication.factor",
    _REPLICATION_FACTOR,
    AtMost(3),
    readers=BY_WORKER,
    parts=(FlowPart.OWN_TOPICS,),
    at="B.",
    text="Replicas of that topic, of the flight recorder mm2-flight.A.internal and of mm2-history.A.internal.",
)
ON_SOURCE_GAP: Key[str | None] = GAPS.row(
    "on.source.gap",
    one_of("stop", "continue", "restart"),
    None,
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.GAPS,),
    field="on_source_gap",
    lines=("##A->B.on.source.gap = stop",),
    text=(
        "What to do if the source lost records, or is not what was copied: stop, continue after what is lost, or"
        " restart at the first record there is. Without this setting, mm2py skips records that expired before they"
        " were copied, and stops a topic that was cut back or recreated. Only mm2py has the settings of this"
        " section from here on."
    ),
)
ON_TARGET_LOSS = GAPS.row(
    "on.target.loss",
    one_of("stop", "recopy"),
    "stop",
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.GAPS,),
    field="on_target_loss",
    text=(
        "What to do if a remote topic was deleted, or has lost its end: stop, or recopy everything that the"
        " source has. What is still in the copy comes twice then."
    ),
)
STALL_TIMEOUT = GAPS.row(
    "stall.timeout.ms",
    _POSITIVE,
    30_000,
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.STALLS,),
    field="stall_timeout_s",
    text=(
        "A partition is reported as stalled, with the reason, if records wait and none is acknowledged for so"
        " many milliseconds. Under isolation.level=read_committed this includes records behind a transaction that"
        " has not ended."
    ),
)

BESIDE_MM2 = Section("beside MirrorMaker 2")
GROUP_ID = BESIDE_MM2.row(
    "group.id",
    name,
    "",
    readers=BY_WORKER,
    field="mm2_group_id",
    lines=("#B.group.id = A-mm2",),
    text=(
        "The group in which MirrorMaker 2's workers run this flow: while it has members, mm2py does not start the flow."
    ),
)
"""Its default is in the layers: ``A-mm2``."""
CONFIGS_TOPIC = BESIDE_MM2.row(
    "config.storage.topic",
    topic_name,
    "",
    readers=BY_WORKER,
    field="configs_topic",
    lines=("#B.config.storage.topic = mm2-configs.A.internal",),
    text=(
        "The topic with the settings of MirrorMaker 2's connectors. They tell one that copies this flow from one"
        " that only emits its heartbeats. mm2py keeps there the settings of the flow that all its workers use,"
        " never addresses or credentials."
    ),
)
"""Its default is in the layers: ``mm2-configs.A.internal``."""
CONFIGS_REPLICATION_FACTOR: Key[int] = BESIDE_MM2.row(
    "config.storage.replication.factor", _REPLICATION_FACTOR, AtMost(3), readers=BY_WORKER, at="B."
)

BATCHES = Section("how batches travel, only of mm2py")
COPY_MODE = BATCHES.row(
    "copy.mode",
    one_of("auto", "pass", "repack"),
    "auto",
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.READING,),
    text=(
        "auto: batches pass as bytes. If many small ones wait, mm2py makes one large batch of them (the log says"
        " when and why). pass: it never does. repack: it always does, if several come at once. Batches that have"
        " to be rebuilt (broker timestamps, offsets missing after compaction) are not merged."
    ),
)
COPY_MODE_PASS_TOPICS: Key[tuple[str, ...]] = BATCHES.row(
    "copy.mode.pass.topics",
    strings,
    (),
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.READING,),
    lines=("##A->B.copy.mode.pass.topics = images, video.*",),
    text="Topics, by Java patterns, for which this is fixed whatever copy.mode says; a topic in both lists passes.",
)
COPY_MODE_REPACK_TOPICS: Key[tuple[str, ...]] = BATCHES.row(
    "copy.mode.repack.topics",
    strings,
    (),
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.READING,),
    lines=("##A->B.copy.mode.repack.topics = clicks",),
)

REFUSED_RECORDS = Section("what the target refuses, only of mm2py")
ON_POISON_RECORD = REFUSED_RECORDS.row(
    "on.poison.record",
    one_of("stop", "quarantine"),
    "stop",
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.POISON,),
    text=(
        "What to do with a record that the target refuses (too large, its timestamp, a null key, a policy). mm2py"
        " cuts its batch to find it. stop: its partition waits there and tries again. quarantine: the record is"
        " kept whole, with its origin, in mm2-quarantine.A.internal on the target, and copying continues after it;"
        " `mm2py replay` takes it out."
    ),
)

LIMITS = Section("limits, only of mm2py")
MEMORY_MAX_BYTES = LIMITS.row(
    "memory.max.bytes",
    integer(MEMORY_MIN_BYTES, 2**63 - 1),
    96 * 1024 * 1024,
    readers=AT_TOP,
    text=(
        "Bytes of records in memory, for the whole file; at least 16777216. The buffers that hold them may be"
        " half as large again. It counts for each worker process: --workers 4 uses four times as much."
    ),
)
METRICS_PARTITIONS_MAX = LIMITS.row(
    "metrics.partitions.max",
    integer(0),
    10_000,
    readers=AT_TOP,
    text=(
        "This many partitions of a worker have series of their own on its page of metrics. The others share one"
        ' series for each topic, with partition="all", and mm2py_partitions_left_out tells how many they are. So'
        " many groups in remote partitions have a latency of their checkpoints there; mm2py_checkpoints_left_out"
        " tells how many more there are."
    ),
)
TASKS_MAX: Key[int | None] = LIMITS.row(
    "tasks.max",
    _POSITIVE,
    None,
    readers=BY_CONNECTOR,
    parts=(FlowPart.SPREAD,),
    field="tasks_max",
    lines=("##tasks.max = 4",),
    text=(
        "The largest number of workers of a flow. Without it a flow uses all that take part; in MirrorMaker 2 it is 1."
    ),
)
BYTES_PER_SECOND_MAX: Key[int | None] = LIMITS.row(
    "bytes.per.second.max",
    integer(1, 2**63 - 1),
    None,
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.RATE,),
    field="bytes_per_second_max",
    lines=("##bytes.per.second.max = 52428800",),
    text=(
        "Bytes that a flow copies in a second. Without it there is no limit. Several workers divide it: each gets"
        " a part in proportion to its partitions of the flow."
    ),
)
CONNECTIONS_PER_BROKER_MAX = LIMITS.row(
    "connections.per.broker.max",
    integer(1, 1000),
    64,
    readers=AT_TOP_AND_FLOW,
    parts=(FlowPart.READING,),
    field="connections_per_broker_max",
    text=(
        "Connections to one source broker that read what a flow has to catch up, at most. mm2py opens as many as"
        " the link rewards: over a long way one carries little. Near brokers are read over one."
    ),
)
EXACTLY_ONCE = LIMITS.row(
    "exactly.once.source.support",
    one_of("disabled", "preparing", "enabled", any_case=True),
    "disabled",
    readers=BY_WORKER,
    field="exactly_once",
    at="B.",
    text=(
        "Exactly once, also after workers die or brokers forget. Records are there once and in order anyway, if"
        " the target lets mm2py use transactional ids. With enabled a flow stops where that is not so, and copies"
        " committed records only. preparing is accepted as a step towards enabled and changes nothing. As in"
        " MirrorMaker 2 it is written for the target."
    ),
)
EXACTLY_ONCE_SUPPORT = LIMITS.row(
    "exactly.once.support",
    one_of("requested", "required", any_case=True),
    "requested",
    readers=BY_FLOW,
    at="A->B.",
    text="With required, the flow does not run unless exactly.once.source.support is enabled.",
)
"""Of a connector: whether it must not run without."""
MANY_TO_ONE = LIMITS.row(
    "many.to.one",
    boolean,
    False,
    readers=AT_TOP_AND_FLOW,
    field="many_to_one",
    text=(
        "Let several flows write to one topic of the target (identity policy). Such a topic is copied at least"
        " once, not exactly once."
    ),
)
