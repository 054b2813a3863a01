"""The table of checks: one row a check, of which the page of each code is made (``docs/checks/``). Pure.

A code is stable: it never gets another meaning, and the code of a check that is removed is not used again.

MirrorMaker 2 has no such table: it reports what is missing in its log, one thing after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Category(StrEnum):
    """The headings under which results are shown, in this order."""

    FILE = "The file"
    ADDRESSES = "Addresses"
    LOGINS = "TLS and logins"
    VERSIONS = "Versions and features"
    RIGHTS = "Rights"
    INTERNAL_TOPICS = "Internal topics"
    NAMES = "Names"
    SIZES = "Sizes"
    CLOCKS = "Clocks"
    LINK = "The link"


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check. The texts are those of its page; ``A`` and ``B`` are source and target of the flow ``A->B``."""

    code: str
    category: Category
    title: str
    asks: str
    """What is asked, and of which cluster."""
    matters: str
    """What goes wrong otherwise."""
    remedy: str
    unknown: str = ""
    """When it is not checkable, beside a cluster that does not answer; empty: always."""


_TWO_FLOWS: Final = "Two aliases may name one cluster only by mistake."

CHECKS: Final = (
    CheckRow(
        "MM0001",
        Category.FILE,
        "The file enables flows that can run",
        "Whether mm2py can run each flow that the file enables. No cluster is asked.",
        "A flow that asks for something that mm2py cannot do, such as a Java class, or that is part of a ring, is"
        " refused when the worker starts. The other flows run.",
        "The line says what is refused and what to write instead.",
    ),
    CheckRow(
        "MM0002",
        Category.FILE,
        "The file has no doubtful lines",
        "What a worker would warn about when it reads the file, such as a misspelt key.",
        "A setting that is spelt wrong has no effect.",
        "Correct or remove the line.",
    ),
    CheckRow(
        "MM0101",
        Category.ADDRESSES,
        "The cluster answers",
        "Whether a broker answers at one of the addresses of `bootstrap.servers`, and how many brokers it names.",
        "Nothing else can be checked, and no flow of this cluster can run.",
        "Check the address, the port, firewalls, and that `security.protocol` fits the listener. A broker that is"
        " reached under another name than the one it advertises needs a listener for that name.",
    ),
    CheckRow(
        "MM0102",
        Category.ADDRESSES,
        "Each address of bootstrap.servers answers",
        "Every address of `bootstrap.servers` is asked, not only the first that answers.",
        "The worker starts with any address that answers. If only one of them does, it cannot start while that broker"
        " is down.",
        "Remove addresses that are gone, or start their brokers.",
    ),
    CheckRow(
        "MM0103",
        Category.ADDRESSES,
        "All addresses lead to one cluster",
        "The cluster id that each address of `bootstrap.servers` names, if it answers.",
        "mm2py refuses a cluster whose addresses lead to two clusters: records of both would mix.",
        "Let `bootstrap.servers` name brokers of one cluster only.",
    ),
    CheckRow(
        "MM0104",
        Category.ADDRESSES,
        "Each broker can be reached",
        "A connection to each broker, at the address that the broker advertises for this listener.",
        "Partitions that such a broker leads can neither be read nor written.",
        "Start the broker, or correct its `advertised.listeners`: the name must lead to the broker from the machine on"
        " which mm2py runs.",
    ),
    CheckRow(
        "MM0105",
        Category.ADDRESSES,
        "Source and target are two clusters",
        "Whether the cluster ids of both sides differ.",
        f"mm2py refuses a flow from a cluster to itself. {_TWO_FLOWS}",
        "Correct `bootstrap.servers` of one of the two aliases.",
    ),
    CheckRow(
        "MM0201",
        Category.LOGINS,
        "The connection is secured as the file says",
        "Whether TLS succeeds: trust store, host name, protocol version, and our own certificate where a broker asks"
        " for one. Without TLS, what others on the network can read.",
        "Without a TLS connection no flow of this cluster runs. Without TLS, everybody on the network can read the"
        " records, and with SASL PLAIN the password.",
        "The line says what the other side did not accept. docs/security.md has the settings.",
    ),
    CheckRow(
        "MM0202",
        Category.LOGINS,
        "The cluster accepts our login",
        "One login with the user of the file. It is not repeated: wrong passwords in quick succession lock accounts.",
        "Without a login no flow of this cluster runs.",
        "Check user name and password, that the user may use this mechanism, and for OAUTHBEARER the token server.",
    ),
    CheckRow(
        "MM0203",
        Category.LOGINS,
        "Our certificate is valid for a while",
        "The end of the client certificate in `ssl.keystore`, if there is one. No cluster is asked.",
        "Brokers refuse an expired certificate, and all flows of this cluster stop.",
        "Replace the file. A worker reads it again without a restart.",
    ),
    CheckRow(
        "MM0301",
        Category.VERSIONS,
        "The brokers have a version that mm2py knows",
        "The version of each broker, as far as it can be told from the features that it supports (`metadata.version`)."
        " A broker that names none is older than 3.3 if it speaks DescribeLogDirs before version 4 only.",
        "mm2py works with brokers from 3.3 to 4.4. Others were not tested.",
        "Upgrade brokers that are older. For newer ones, look for a newer mm2py.",
        "a broker that names no features and is not older than 3.3: it uses ZooKeeper",
    ),
    CheckRow(
        "MM0302",
        Category.VERSIONS,
        "The brokers speak the requests that mm2py sends",
        "For each request, whether each broker speaks the version that mm2py uses.",
        "What needs this request fails.",
        "Upgrade these brokers. If something between mm2py and the brokers filters requests, let it pass these.",
    ),
    CheckRow(
        "MM0303",
        Category.VERSIONS,
        "The target can fence",
        "Whether the target has the topic `__transaction_state`, or enough brokers to make it"
        " (`transaction.state.log.replication.factor`).",
        "After a crash a worker fences its predecessor with a transactional id. Where this is not possible, records"
        " may be copied twice after a crash, and `exactly.once.source.support=enabled` refuses the flow.",
        "Lower `transaction.state.log.replication.factor` on the target's brokers, or start more of them.",
        "the topic may not be seen, and the setting may not be read",
    ),
    CheckRow(
        "MM0401",
        Category.RIGHTS,
        "Topics of the source may be read",
        "The rights on each topic that the flow copies, as the source tells them.",
        "A topic that may not be read is not copied.",
        "Run the `kafka-acls` command of the line.",
    ),
    CheckRow(
        "MM0402",
        Category.RIGHTS,
        "Remote topics may be created and written",
        "The rights on the remote topic of each topic, whether it exists or not. CREATE is not asked for a topic that"
        " exists. ALTER, which is for new partitions only, is a warning there.",
        "A topic whose remote topic may not be written is not copied.",
        "Run the `kafka-acls` command of the line, or create the topic by hand where only CREATE is missing.",
    ),
    CheckRow(
        "MM0403",
        Category.RIGHTS,
        "Internal topics may be created, read and written",
        "The rights on the topics that every flow needs on its target: settings, positions, status, ledger and the"
        " control log of its group.",
        "The flow does not start.",
        "Run the `kafka-acls` command of the line.",
    ),
    CheckRow(
        "MM0404",
        Category.RIGHTS,
        "The transactional id may be used",
        "DESCRIBE on the transactional ids of the group, which WRITE includes. WRITE alone cannot be asked for without"
        " writing.",
        "Without WRITE a worker cannot fence its predecessor: the flow is copied at least once.",
        "Run the `kafka-acls` command of the line.",
        "DESCRIBE is there, and the cluster has an authorizer: only a write tells whether WRITE is",
    ),
    CheckRow(
        "MM0405",
        Category.RIGHTS,
        "A running MirrorMaker 2 can be seen",
        "DESCRIBE on the group in which MirrorMaker 2 would run this flow.",
        "Without it mm2py cannot see that a MirrorMaker 2 still copies the flow, and both would copy it.",
        "Run the `kafka-acls` command of the line, or make sure that no MirrorMaker 2 runs.",
    ),
    CheckRow(
        "MM0406",
        Category.RIGHTS,
        "Settings of the target's brokers may be read",
        "DESCRIBE_CONFIGS on the target cluster.",
        "mm2py cannot see for how long brokers remember producers, and assumes the default.",
        "Run the `kafka-acls` command of the line.",
    ),
    CheckRow(
        "MM0407",
        Category.RIGHTS,
        "Offset syncs may be written",
        "The rights on the topic of offset syncs, unless `emit.offset-syncs.enabled` is false.",
        "MirrorMaker 2's own tools cannot translate offsets.",
        "Run the `kafka-acls` command of the line, or set `offset-syncs.topic.location = target`.",
    ),
    CheckRow(
        "MM0408",
        Category.RIGHTS,
        "Consumer groups may be followed",
        "The rights on groups of the source, on offset syncs and on the checkpoints topic, and if"
        " `sync.group.offsets.enabled` is set, READ on the groups of the target.",
        "Groups that may not be read have no checkpoint, and cannot continue on the target.",
        "Run the `kafka-acls` command of the line.",
        "the source shows no group that `groups` selects. Brokers leave out groups that may not be described: if others"
        " are shown, only those that `groups` names by their full names are missed",
    ),
    CheckRow(
        "MM0409",
        Category.RIGHTS,
        "Heartbeats may be written on the target",
        "The rights on the topic `heartbeats` of the target, unless `emit.heartbeats.enabled` is false.",
        "No heartbeat is written, and alerts that wait for one fire.",
        "Run the `kafka-acls` command of the line.",
    ),
    CheckRow(
        "MM0410",
        Category.RIGHTS,
        "Heartbeats may be written on the source",
        "The rights that mm2py needs to write heartbeats to the source of a flow, too, which the flow then copies.",
        "The path from source to target cannot be seen to work while no records are sent.",
        "Run the `kafka-acls` command of the line, or switch it off: docs/rights.md says how.",
    ),
    CheckRow(
        "MM0411",
        Category.RIGHTS,
        "Settings of remote topics may be changed",
        "ALTER_CONFIGS on each remote topic, if `sync.topic.configs.enabled` is set.",
        "Changed settings of a topic do not reach its remote topic.",
        "Run the `kafka-acls` command of the line.",
    ),
    CheckRow(
        "MM0412",
        Category.RIGHTS,
        "ACLs of topics may be carried over",
        "DESCRIBE on the source cluster and ALTER on the target cluster, if `sync.topic.acls.enabled` is set.",
        "The remote topics get no ACLs.",
        "Run the `kafka-acls` command of the line, or set `sync.topic.acls.enabled = false`.",
    ),
    CheckRow(
        "MM0413",
        Category.RIGHTS,
        "Refused records may be kept",
        "The rights on the quarantine topic, and DESCRIBE on the target cluster, if `on.poison.record = quarantine`.",
        "A record that the target refuses stops its partition instead of being kept.",
        "Run the `kafka-acls` command of the line.",
    ),
    CheckRow(
        "MM0414",
        Category.RIGHTS,
        "Rings of flows can be seen",
        "READ on what flows in the other direction keep on the source.",
        "The flow copies, but cannot see whether another file sends its records back.",
        "Run the `kafka-acls` command of the line.",
    ),
    CheckRow(
        "MM0415",
        Category.RIGHTS,
        "The flight recorder may be written",
        "The rights on the topic in which workers note what they decide and meet.",
        "The flow copies, but `mm2py why --at` does not know how it was.",
        "Run the `kafka-acls` command of the line.",
    ),
    CheckRow(
        "MM0416",
        Category.RIGHTS,
        "The history may be written",
        "The rights on the topic in which the flow's history is kept, and READ on the flight recorder's, whose events"
        " it has. Only REST needs them.",
        "The flow copies, but `/v1/flows/A->B/history` has no numbers, or lacks events.",
        "Run the `kafka-acls` command of the line.",
    ),
    CheckRow(
        "MM0501",
        Category.INTERNAL_TOPICS,
        "Internal topics exist",
        "Whether the internal topics that the flow needs are there. With `--pre` they need not be.",
        "A worker creates those that are missing when it starts. Where one has run before, they should be there: if"
        " they are not, its positions are lost.",
        "Before the first start, use `--pre`. Afterwards find out who deleted the topic.",
        "the topic may not be seen",
    ),
    CheckRow(
        "MM0502",
        Category.INTERNAL_TOPICS,
        "Internal topics keep what is written to them",
        "The settings of each internal topic that exists, such as `cleanup.policy`, and its number of partitions.",
        "mm2py refuses a topic that would lose its records, and the flow does not start.",
        "Set what the line says with `kafka-configs --alter`.",
        "DESCRIBE_CONFIGS on the topic is missing",
    ),
    CheckRow(
        "MM0503",
        Category.INTERNAL_TOPICS,
        "Internal topics can be written",
        "Whether each partition of an internal topic has a leader, and at least as many replicas as its"
        " `min.insync.replicas`.",
        "Writes to such a partition fail, and the flow waits.",
        "Start the missing brokers, add replicas, or lower `min.insync.replicas` of the topic.",
        "the topic may not be seen",
    ),
    CheckRow(
        "MM0504",
        Category.INTERNAL_TOPICS,
        "Internal topics can be created",
        "For each internal topic that is missing, whether the cluster has as many brokers as the file wants replicas."
        " Replication factors that the file does not set are made to fit.",
        "The topic cannot be created, and the flow does not start.",
        "Lower the setting that the line names.",
    ),
    CheckRow(
        "MM0601",
        Category.NAMES,
        "The flow finds topics to copy",
        "How many topics of the source the flow selects, among those that mm2py may see, and which patterns of `topics`"
        " match none of them.",
        "A flow that selects nothing copies nothing.",
        "Correct `topics` and `topics.exclude`. A topic that mm2py may not DESCRIBE is not shown to it: of such topics"
        " only those that `topics` names by their full names can be checked. Grant DESCRIBE on the others, and check"
        " again.",
    ),
    CheckRow(
        "MM0602",
        Category.NAMES,
        "The names of remote topics are free",
        "For each remote topic that exists and holds records, whether a position of this flow is stored for it.",
        "mm2py does not copy into a topic of which it does not know who filled it: records could be repeated or mixed.",
        "Do not delete the topic before you know what it holds. docs/offsets.md tells how to go on behind what is"
        " there. If nothing in it came from the source, `--allow-recopy` copies behind it.",
        "the positions may not be read, DESCRIBE on the remote topic is missing, or one of its partitions has no"
        " leader",
    ),
    CheckRow(
        "MM0603",
        Category.NAMES,
        "The names of remote topics are allowed",
        "Whether Kafka accepts the name of each remote topic: at most 249 characters, and no other topic whose name"
        " differs only in `.` and `_`.",
        "The remote topic cannot be created, so the topic is not copied.",
        "Leave the topic out, use a shorter alias, or another `replication.policy.separator`.",
    ),
    CheckRow(
        "MM0604",
        Category.NAMES,
        "Each remote topic belongs to one topic of one flow",
        "Whether two flows of the file copy to the same topic, without `many.to.one`, and whether `topics.rename` gives"
        " two topics of a flow one name.",
        "mm2py refuses the topic for all flows, or the other topic, but the first that was listed.",
        "Leave the topic out of all but one of the flows, or set `many.to.one = true` for each of them. For one of two"
        " topics with one name, put a rule in front in `topics.rename`, or exclude it.",
    ),
    CheckRow(
        "MM0605",
        Category.NAMES,
        "No MirrorMaker 2 runs the flow in its group",
        "The members of one group on the target: that of MirrorMaker 2's dedicated mode, or the `group.id` of the file."
        " Connectors of MirrorMaker 2 in another Connect cluster are not looked for: its group does not tell what it"
        " runs.",
        "mm2py refuses a flow that a live MirrorMaker 2 copies.",
        "Stop MirrorMaker 2 for this flow. mm2py then continues at its positions. Stop its connectors in Connect as"
        " well: docs/offsets.md tells how mm2py goes on from there.",
        "DESCRIBE on the group is missing",
    ),
    CheckRow(
        "MM0701",
        Category.SIZES,
        "Remote topics take records as large as the source has",
        "`max.message.bytes` of each topic, and of its remote topic, or the value that a new one would get.",
        "A larger batch is divided. A single record that is too large stops its partition, or goes into quarantine.",
        "Raise `max.message.bytes` of the remote topic, or `message.max.bytes` of the target's brokers.",
        "DESCRIBE_CONFIGS is missing",
    ),
    CheckRow(
        "MM0702",
        Category.SIZES,
        "Remote topics keep records as long as the source",
        "`retention.ms` and `retention.bytes` of each topic, and of its remote topic, or the values that a new one"
        " would get.",
        "The target deletes records by their own timestamps: what is older than its retention is deleted soon after it"
        " was copied.",
        "Raise the retention of the remote topic, if the copy shall hold as much as the source.",
        "DESCRIBE_CONFIGS is missing",
    ),
    CheckRow(
        "MM0703",
        Category.SIZES,
        "The backlog is younger than the retention of the source",
        "For each partition, whether the next record to copy has more than a quarter of the source's `retention.ms`"
        " left before it expires.",
        "Records that expire before they are copied are missing in the copy. mm2py reports them as a gap.",
        "Raise `retention.ms` of the topic until the flow has caught up.",
        "DESCRIBE_CONFIGS is missing, a partition has no leader, or no position is stored for it, as before the first"
        " start",
    ),
    CheckRow(
        "MM0704",
        Category.SIZES,
        "The target has brokers for the replicas of remote topics",
        "`replication.factor` of the file beside the number of brokers of the target.",
        "New remote topics cannot be created.",
        "Lower `replication.factor`, or set it to -1 to leave it to the target.",
    ),
    CheckRow(
        "MM0705",
        Category.SIZES,
        "The target may hold all remote partitions",
        "The partitions of all selected topics beside `remote.partitions.max`.",
        "Topics beyond the limit are not copied.",
        "Raise `remote.partitions.max`, or select fewer topics.",
    ),
    CheckRow(
        "MM0801",
        Category.CLOCKS,
        "The clocks of this machine and of the target agree",
        "The time of the newest heartbeat in the control log of the group, which the target's broker sets, beside the"
        " clock of this machine.",
        "A worker whose clock is an hour ahead of the target copies nothing. Smaller differences make lags and safe"
        " times wrong by as much.",
        "Set the clocks right, for example with NTP.",
        "no worker writes heartbeats while the check runs: a broker tells its time only on records that it stores",
    ),
    CheckRow(
        "MM0802",
        Category.CLOCKS,
        "The clocks of this machine and of the source agree",
        "Nothing can be asked: a broker tells its time only on records that it stores.",
        "Lags in seconds are wrong by the difference.",
        "Set the clocks right, for example with NTP.",
        "always",
    ),
    CheckRow(
        "MM0901",
        Category.LINK,
        "The brokers are near",
        "The shortest round trip to each broker.",
        "Over a long way one connection carries little. mm2py opens more, which costs CPU and memory.",
        "Run the workers beside the target: docs/long-links.md.",
    ),
    CheckRow(
        "MM0902",
        Category.LINK,
        "Socket buffers do not bound a long link",
        "If a round trip takes 5 ms or more: `socket.send.buffer.bytes` of the source's brokers, or"
        " `socket.receive.buffer.bytes` of the target's.",
        "A buffer of a fixed size bounds what is under way on a connection, however fast the link is.",
        "Set the setting that the line names to -1 on these brokers, and restart them: the kernel then tunes it.",
        "DESCRIBE_CONFIGS on the cluster is missing",
    ),
)

ROWS: Final = {row.code: row for row in CHECKS}
