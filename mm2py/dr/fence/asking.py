"""Asks a cluster for what a fence is planned from, and what it is judged by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.dr.fence.facts import FenceFacts, KnownAcls, SeenTransaction
from mm2py.dr.fence.fenced_cluster import FencedCluster
from mm2py.dr.fence.plan import in_short
from mm2py.dr.fence.stillness import FenceSample
from mm2py.kafka import admin
from mm2py.kafka.cluster import ClusterMetadata, fetch_metadata
from mm2py.kafka.error_codes import SECURITY_DISABLED, name_of
from mm2py.kafka.errors import BrokerRefused, Reaction, reaction_to
from mm2py.kafka.list_offsets import LATEST, by_leader, chunks, list_offsets
from mm2py.kafka.port import BrokerId, Brokers, TopicPartition
from mm2py.kafka.producer import transactions
from mm2py.kafka.producer.transactions import ActiveProducer

OPEN_WITHOUT_ACL: Final = "allow.everyone.if.no.acl.found"
SUPER_USERS: Final = "super.users"
PARTITIONS_A_REQUEST: Final = 1000
IDS_A_REQUEST: Final = 1000
_OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


class FenceInquiry:
    """Asks the source of one flow."""

    def __init__(self, alias: str, brokers: Brokers, cluster: FencedCluster) -> None:
        self._alias = alias
        self._brokers = brokers
        self._cluster = cluster

    async def facts(self, topics: Sequence[str]) -> FenceFacts:
        """Return what a fence of these topics is planned from.

        Raises:
            BrokerRefused: the ACLs, or the settings of a topic, may not be read.
            KafkaError: a broker does not answer.
        """
        unknown: list[str] = []
        metadata = await fetch_metadata(self._brokers, topics)
        acls = await self._acls()
        open_without_acl, super_users = await self._authorizer(metadata, unknown) if acls else (False, None)
        producers = await self._producers(_leaders(metadata), unknown)
        seen = await self._transactions(metadata, unknown)
        sizes = await self._cluster.sizes(topics)
        return FenceFacts(acls, open_without_acl, super_users, producers, seen, sizes, tuple(unknown))

    async def sample(self, topics: Sequence[str], at_s: float) -> FenceSample:
        """Return what the leaders say now. What they do not say is among ``unread``."""
        unread: list[str] = []
        metadata = await fetch_metadata(self._brokers, topics)
        for name in topics:
            topic = metadata.topics.get(name)
            if topic is None or topic.error_code:
                why = "it is not there" if topic is None else name_of(topic.error_code)
                unread.append(f"{name} on {self._alias} is not known: {why}")
        leaders = _leaders(metadata)
        unread += [f"{topic}-{number} has no leader" for (topic, number), leader in leaders.items() if leader is None]
        producers = await self._producers(leaders, unread)
        ends = await self._ends(leaders, unread, of_log=True)
        stable = await self._ends(leaders, unread, of_log=False)
        return FenceSample(at_s, ends, stable, producers, tuple(dict.fromkeys(unread)))

    async def producers(
        self, topics: Sequence[str]
    ) -> tuple[Mapping[TopicPartition, Sequence[ActiveProducer]], Sequence[str]]:
        """Return the producers that the leaders remember of the partitions of topics, and what they do not tell."""
        unknown: list[str] = []
        found = await self._producers(_leaders(await fetch_metadata(self._brokers, topics)), unknown)
        return found, unknown

    async def transactions(self) -> list[SeenTransaction]:
        """Return the transactional ids that the cluster shows us. Raises: KafkaError."""
        return await self._transactions(await fetch_metadata(self._brokers, []), [])

    async def _acls(self) -> KnownAcls | None:
        try:
            return KnownAcls(
                await admin.describe_topic_acls(self._brokers),
                await admin.describe_transactional_id_acls(self._brokers),
            )
        except BrokerRefused as error:
            if error.code == SECURITY_DISABLED:
                return None
            if error.reaction is Reaction.DENIED:
                remedy = f"Grant mm2py ALTER on the cluster resource of {self._alias}, which includes DESCRIBE."
                raise BrokerRefused("Listing the ACLs", error.code, remedy=remedy) from error
            raise

    async def _authorizer(self, metadata: ClusterMetadata, unknown: list[str]) -> tuple[bool, str | None]:
        """Return whether resources without an ACL may be open, and the super users, by what all brokers have."""
        is_open, users = False, set[str]()
        any_users = False
        for broker in metadata.brokers:
            found = await admin.describe_broker_configs(self._brokers, broker, [OPEN_WITHOUT_ACL, SUPER_USERS])
            if isinstance(found, BrokerRefused):
                is_open = True
                unknown.append(
                    f"Broker {broker} of {self._alias} does not tell its settings ({name_of(found.code)}), so it is not"
                    " known who is a super user. Grant mm2py DESCRIBE_CONFIGS on the cluster."
                )
                continue
            values = {entry.name: entry.value for entry in found}
            if OPEN_WITHOUT_ACL in values:
                is_open |= (values[OPEN_WITHOUT_ACL] or "true").strip().lower() != "false"
            if SUPER_USERS in values:
                any_users = True
                users |= {one.strip() for one in (values[SUPER_USERS] or "").split(";") if one.strip()}
        return is_open, ", ".join(sorted(users)) if any_users else None

    async def _producers(
        self, leaders: Mapping[TopicPartition, BrokerId | None], unknown: list[str]
    ) -> dict[TopicPartition, Sequence[ActiveProducer]]:
        found: dict[TopicPartition, Sequence[ActiveProducer]] = {}
        refused: dict[int, list[str]] = {}
        for leader, keys in by_leader(leaders).items():
            for some in chunks(keys, PARTITIONS_A_REQUEST):
                answers = await transactions.describe_producers(self._brokers, leader, some)
                for key, told in answers.items():
                    if isinstance(told, int):
                        refused.setdefault(told, []).append(f"{key[0]}-{key[1]}")
                    else:
                        found[key] = told
        for code, places in sorted(refused.items()):
            remedy = " Grant mm2py READ on these topics." if reaction_to(code) is Reaction.DENIED else ""
            unknown.append(f"The producers of {in_short(sorted(places))} are not told ({name_of(code)}).{remedy}")
        return found

    async def _ends(
        self, leaders: Mapping[TopicPartition, BrokerId | None], unread: list[str], *, of_log: bool
    ) -> dict[TopicPartition, int]:
        answers = await list_offsets(self._brokers, leaders, LATEST, of_log=of_log, read_committed=not of_log)
        found: dict[TopicPartition, int] = {}
        for key, answer in answers.items():
            if answer.error_code:
                unread.append(f"The end of {key[0]}-{key[1]} is not told ({name_of(answer.error_code)})")
            else:
                found[key] = answer.offset
        return found

    async def _transactions(self, metadata: ClusterMetadata, unknown: list[str]) -> list[SeenTransaction]:
        topic = await transactions.find_topic(self._brokers)
        if topic is None:
            return []  # no producer of the cluster is transactional
        found: list[SeenTransaction] = []
        for broker in metadata.brokers:
            listed = await transactions.list_transactions(self._brokers, broker)
            open_ids = [one.transactional_id for one in listed if one.state in _OPEN_STATES]
            partitions = await self._open_partitions(broker, open_ids, unknown)
            found += [
                SeenTransaction(
                    one.transactional_id,
                    one.producer_id,
                    one.state,
                    partitions.get(one.transactional_id, frozenset()),
                )
                for one in listed
            ]
        return found

    async def _open_partitions(
        self, coordinator: BrokerId, ids: Sequence[str], unknown: list[str]
    ) -> dict[str, frozenset[TopicPartition]]:
        found: dict[str, frozenset[TopicPartition]] = {}
        for some in chunks(ids, IDS_A_REQUEST):
            answers = await transactions.describe_transactions(self._brokers, coordinator, some)
            for name, told in answers.items():
                if isinstance(told, int):
                    unknown.append(f"Transactional id {name} is not told ({name_of(told)}).")
                else:
                    found[name] = told
        return found


def _leaders(metadata: ClusterMetadata) -> dict[TopicPartition, BrokerId | None]:
    return {
        (topic.name, number): part.leader
        for topic in metadata.topics.values()
        for number, part in topic.partitions.items()
    }
