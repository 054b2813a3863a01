"""One Kafka cluster: its brokers, the leaders of partitions, and a connection to each broker on demand.

A request is sent once: retrying is left to the callers, which have ``until_answered`` for it.

Counterpart: KafkaClient and Metadata of Apache Kafka's clients.
"""

from __future__ import annotations

import asyncio
import math
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from kio.schema.types import TopicName
from kio.static.protocol import Payload
from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.kafka import messages
from mm2py.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED
from mm2py.kafka.errors import (
    AuthenticationFailed,
    Backoff,
    BrokerUnreachable,
    ForeignCluster,
    KafkaError,
    RequestTimedOut,
)
from mm2py.kafka.port import ANY_BROKER, BrokerId, Brokers, FetchRequest, ProduceRequest, ask
from mm2py.kafka.security.access import Access
from mm2py.kafka.transport.connection import Connection
from mm2py.kafka.transport.opening import ConnectionOptions, NameLookup, connect, peer_name
from mm2py.kafka.transport.wire import FrameMemory
from mm2py.topics.names import NAME_MAX_CHARS

CONNECT_TIMEOUT_S = 10.0
"""For all steps of connecting together; each of them waits no longer than a request that carries records."""
AVOIDED_S = 30.0
"""How long a broker that did not answer is avoided for requests that other brokers can answer as well."""
PARTITIONS_AT_ONCE: Final = 1000
"""After the metadata of this many, other tasks run: those of 100,000 partitions take a quarter of a second."""
ASKED_MOST: Final = 1000
"""How many topics are asked for by name at once."""
WAITING_REPORT_S: Final = 5.0
"""How often the log repeats that something still waits."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The leader of a partition; None while it has none."""

    partition: int
    leader: BrokerId | None
    leader_epoch: int
    error_code: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: uuid.UUID | None
    error_code: int
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The content of one metadata reply."""

    cluster_id: str | None
    brokers: Mapping[BrokerId, tuple[str, int]]
    topics: Mapping[str, TopicMetadata]

    def leader_of(self, topic: str, partition: int) -> BrokerId | None:
        """Return the leader of a partition; None if it has none, or there is no such partition."""
        known = self.topics.get(topic)
        found = None if known is None else known.partitions.get(partition)
        return None if found is None else found.leader


async def fetch_metadata(
    brokers: Brokers, topics: Iterable[str] | None, *, channel: str = "control"
) -> ClusterMetadata:
    """Ask any broker about ``topics`` (None: all that we may see). This creates no topic.

    Raises: as ``Brokers.send``. Errors of single topics and partitions are in the reply.
    """
    wanted = None
    if topics is not None:
        wanted = tuple(messages.MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics)
    request = messages.MetadataRequest(
        topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    reply = await ask(brokers, ANY_BROKER, request, messages.MetadataResponse, channel=channel)
    return ClusterMetadata(
        cluster_id=reply.cluster_id,
        brokers={BrokerId(broker.node_id): (broker.host, broker.port) for broker in reply.brokers},
        topics=await _topics_of(reply),
    )


async def hidden_among(brokers: Brokers, names: Iterable[str], *, channel: str = "control") -> set[str]:
    """Return the topics that we may not describe; only the first ``ASKED_MOST`` names are asked about.

    A list of all topics leaves them out as if they were deleted. The answer to a request by name shows the difference.

    Raises: as ``fetch_metadata``.
    """
    asked = sorted(names)[:ASKED_MOST]
    topics = (await fetch_metadata(brokers, asked, channel=channel)).topics if asked else {}
    return {name for name, topic in topics.items() if topic.error_code == TOPIC_AUTHORIZATION_FAILED}


async def _topics_of(reply: messages.MetadataResponse) -> dict[str, TopicMetadata]:
    """Return the topics of a reply by name; other tasks run in between, as there may be very many topics."""
    found: dict[str, TopicMetadata] = {}
    count = 0
    for topic in reply.topics:
        partitions: dict[int, PartitionMetadata] = {}
        for part in topic.partitions:
            partitions[int(part.partition_index)] = PartitionMetadata(
                partition=int(part.partition_index),
                leader=BrokerId(part.leader_id) if part.leader_id >= 0 else None,
                leader_epoch=int(part.leader_epoch),
                error_code=int(part.error_code),
            )
            if (count := count + 1) % PARTITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if topic.name is not None and len(topic.name) <= NAME_MAX_CHARS:  # no broker has longer ones
            name = str(topic.name)
            found[name] = TopicMetadata(name, topic.topic_id, int(topic.error_code), topic.is_internal, partitions)
        if (count := count + 1) % PARTITIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


async def until_answered(
    ask: Callable[[], Awaitable[T]], *, rng: random.Random, on_error: Callable[[KafkaError], None] = lambda _: None
) -> T:
    """Repeat a question, with pauses of up to 2 s, until it is answered.

    Args:
        on_error: takes each error after which the question is repeated.
    Raises:
        KafkaError: one that no retry mends.
    """
    backoff = Backoff(rng, most_s=2.0)
    while True:
        try:
            return await ask()
        except KafkaError as error:
            if not error.retriable:
                raise
            on_error(error)
        await asyncio.sleep(backoff.next_s())


def now_and_then(
    report: Callable[[KafkaError], None], clock: Clock, *, after_s: float = WAITING_REPORT_S
) -> Callable[[KafkaError], None]:
    """Return a function that passes an error to ``report`` after ``after_s``, and then every few seconds."""
    due_s = clock.monotonic() + after_s

    def on_error(error: KafkaError) -> None:
        nonlocal due_s
        if clock.monotonic() >= due_s:
            due_s = clock.monotonic() + WAITING_REPORT_S
            report(error)

    return on_error


async def reach(
    ask: Callable[[], Awaitable[T]],
    log: FilteringBoundLogger,
    *,
    clock: Clock,
    rng: random.Random,
    on_error: Callable[[KafkaError], None] = lambda _: None,
    **waiting: str,
) -> T:
    """Ask a cluster until it answers. Log at once and every few seconds that it does not, and when it answers again.

    Args:
        log: bound to the cluster and its role.
        waiting: what waits for the cluster, for the log.
    Raises:
        KafkaError: one that no retry mends.
    """
    reported = False

    def report(error: KafkaError) -> None:
        nonlocal reported
        reported = True
        on_error(error)
        log.warning("cluster.unreachable", **waiting, why=str(error))

    answer = await until_answered(ask, rng=rng, on_error=now_and_then(report, clock, after_s=0))
    if reported:
        log.info("cluster.reached")
    return answer


def _who_is_there() -> messages.MetadataRequest:
    return messages.MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )


@dataclass(slots=True)
class _Slot:
    """At most one connection per broker and channel, and one attempt at a time to make it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    """How many callers wait for the lock or hold it. The lock itself says for a moment that it is free while they
    wait."""
    connection: Connection | None = None
    failure: KafkaError | None = None
    failed_at_s: float = 0.0

    @property
    def is_unused(self) -> bool:
        """No caller waits for an answer or for a connection."""
        return not self.waiting and (self.connection is None or self.connection.is_idle)


@dataclass(frozen=True, slots=True)
class _TurnedAway:
    """A broker did not authenticate us; ``until_s`` is when we try again."""

    error: AuthenticationFailed
    until_s: float
    backoff: Backoff


class Cluster:
    """The ``Brokers`` port on real sockets."""

    def __init__(
        self,
        alias: str,
        bootstrap_servers: Sequence[tuple[str, int]],
        *,
        rng: random.Random,
        client_id: str,
        request_timeout_s: float = 30.0,
        admin_timeout_s: float | None = None,
        access: Access | None = None,
        options: ConnectionOptions = ConnectionOptions(),  # noqa: B008  (it is frozen)
    ) -> None:
        """Make a cluster; connections are opened when they are needed.

        Args:
            request_timeout_s: how long the answer to reading and writing records may take, and each step of connecting.
            admin_timeout_s: the same for all other requests; None: as long.
            access: TLS and authentication; None: plain text, without either.
        """
        self.alias = alias
        self.cluster_id: str | None = None
        self._bootstrap = list(bootstrap_servers)
        self._rng = rng
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._admin_timeout_s = request_timeout_s if admin_timeout_s is None else admin_timeout_s
        self._access = access or Access(alias)
        options = options if options.frames is not None else replace(options, frames=FrameMemory())
        self._options = replace(options, report_step=self._note_step)
        self._step_s = -math.inf
        self._names = NameLookup()
        self._turned_away: dict[tuple[str, int], _TurnedAway] = {}
        self._all_read_topic_ids: bool | None = None
        self._addresses: dict[BrokerId, tuple[str, int]] = {}
        self._slots: dict[tuple[BrokerId, str], _Slot] = {}
        self._silent_until_s: dict[str, float] = {}
        self._opening: Counter[tuple[str, int]] = Counter()
        self._round_trips_s: dict[tuple[str, int], float] = {}

    async def send(
        self, broker: BrokerId, request: FetchRequest | ProduceRequest | Payload, *, channel: str = "control"
    ) -> Any:
        """See ``Brokers.send``."""
        connection = await self._connection(broker, channel)
        carries_records = isinstance(request, FetchRequest | ProduceRequest)
        timeout_s = self._request_timeout_s if carries_records else self._admin_timeout_s
        try:
            reply = await connection.request(request, timeout_s)
        except RequestTimedOut:
            self._avoid(connection)
            raise
        if isinstance(reply, messages.MetadataResponse):
            self._learn(reply)
        return reply

    def round_trip_s(self, broker: BrokerId) -> float | None:
        """See ``Brokers.round_trip_s``."""
        return self._round_trips_s.get(self._addresses.get(broker, ("", 0)))

    def step_s(self) -> float:
        """Return when a step of connecting to a broker last succeeded, by the event loop's clock."""
        return self._step_s

    def _note_step(self) -> None:
        self._step_s = asyncio.get_running_loop().time()

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        """See ``Brokers.close_channel``."""
        slot = self._slots.get((broker, channel))
        if slot is not None and slot.is_unused:
            del self._slots[broker, channel]
            if slot.connection is not None:
                slot.connection.close()

    async def check_bootstrap(self) -> str | None:
        """Ask every bootstrap address that answers for its cluster's id, and return it.

        Raises:
            ForeignCluster: two addresses lead to different clusters.
            BrokerUnreachable, NotKafka, ...: none of them answered; the last error is raised.
        """
        answers = (await self.bootstrap_answers()).values()
        found = [answer for answer in answers if not isinstance(answer, KafkaError)]
        if not found:
            raise next(answer for answer in answers if isinstance(answer, KafkaError))
        if len(set(found)) > 1:
            first, other, *_ = dict.fromkeys(found)
            raise ForeignCluster(self.alias, first=str(first), other=str(other))
        self.cluster_id = found[0]
        return self.cluster_id

    async def bootstrap_answers(
        self, addresses: Collection[tuple[str, int]] | None = None
    ) -> dict[tuple[str, int], str | KafkaError | None]:
        """Ask bootstrap addresses for their cluster's id, all at the same time.

        Args:
            addresses: some of them; None: all.
        Returns:
            By address, the id (None: the cluster has none), or why the address does not answer.
        """
        asked = list(self._bootstrap if addresses is None else addresses)
        answers = await asyncio.gather(*(self._cluster_id_at(host, port) for host, port in asked))
        return dict(zip(asked, answers, strict=True))

    async def _cluster_id_at(self, host: str, port: int) -> str | KafkaError | None:
        try:
            connection = await self._open(host, port)
        except KafkaError as error:
            return error
        try:
            reply = await connection.request(_who_is_there(), self._admin_timeout_s)
            assert isinstance(reply, messages.MetadataResponse)  # noqa: S101  (REPLY_TO says so)
            return reply.cluster_id
        except KafkaError as error:
            return error
        finally:
            connection.close()

    def reads_topic_ids(self) -> bool | None:
        """Whether every broker that answered so far fetches by topic id; None before the first."""
        return self._all_read_topic_ids

    async def close(self) -> None:
        """Close all connections. Requests still open fail with BrokerUnreachable."""
        for slot in self._slots.values():
            if slot.connection is not None:
                slot.connection.close()
        self._slots.clear()

    async def _connection(self, broker: BrokerId, channel: str) -> Connection:
        slot = self._slots.setdefault((broker, channel), _Slot())
        if slot.connection is not None and slot.connection.is_open and not slot.waiting:
            return slot.connection  # callers that wait came earlier: requests keep their order
        asked_s = asyncio.get_running_loop().time()
        slot.waiting += 1
        try:
            async with slot.lock:
                if slot.connection is None or not slot.connection.is_open:
                    if slot.failure is not None and slot.failed_at_s >= asked_s:
                        # callers that waited while an attempt failed share its outcome
                        raise slot.failure.with_traceback(None)
                    try:
                        slot.connection = await self._connect(broker)
                    except KafkaError as error:
                        slot.failure, slot.failed_at_s = error, asyncio.get_running_loop().time()
                        raise
                return slot.connection
        finally:
            slot.waiting -= 1

    async def _connect(self, broker: BrokerId) -> Connection:
        if broker != ANY_BROKER:
            if broker not in self._addresses:
                await self.send(ANY_BROKER, _who_is_there())
            if broker not in self._addresses:
                raise BrokerUnreachable(f"Broker {broker} of {self.alias}", "the cluster names no such broker")
            return await self._open(*self._addresses[broker])
        known = list(self._addresses.values())
        self._rng.shuffle(known)
        addresses = list(dict.fromkeys([*known, *self._rng.sample(self._bootstrap, len(self._bootstrap))]))
        addresses.sort(key=lambda address: (self._is_avoided(*address), self._is_waited_for(*address)))
        last: KafkaError | None = None
        for host, port in addresses:  # the bootstrap servers are among them: all known brokers may have moved
            try:
                return await self._open(host, port)
            except KafkaError as error:
                last = error
        raise last or BrokerUnreachable(self.alias, "it has no address")

    async def _open(self, host: str, port: int) -> Connection:
        now_s = asyncio.get_running_loop().time()
        before = self._turned_away.get((host, port))
        if before is not None and now_s < before.until_s:
            raise before.error.with_traceback(None)  # wrong passwords in quick succession lock accounts
        self._opening[host, port] += 1
        try:
            connection = await connect(
                host,
                port,
                client_id=self._client_id,
                timeout_s=CONNECT_TIMEOUT_S,
                step_timeout_s=self._request_timeout_s,
                access=self._access,
                names=self._names,
                options=self._options,
            )
        except AuthenticationFailed as error:
            backoff = before.backoff if before is not None else Backoff(self._rng, first_s=1.0, most_s=30.0)
            until_s = asyncio.get_running_loop().time() + backoff.next_s()
            self._turned_away[(host, port)] = _TurnedAway(error, until_s, backoff)
            raise
        except KafkaError:
            self._silent_until_s[peer_name(host, port)] = asyncio.get_running_loop().time() + AVOIDED_S
            raise
        finally:
            self._opening[host, port] -= 1
        self._turned_away.pop((host, port), None)
        shortest_s = self._round_trips_s.get((host, port), math.inf)
        self._round_trips_s[host, port] = min(shortest_s, connection.round_trip_s)
        self._all_read_topic_ids = connection.reads_topic_ids and self._all_read_topic_ids is not False
        return connection

    def _avoid(self, silent: Connection) -> None:
        """Send requests that any broker can answer to other brokers, for ``AVOIDED_S``.

        The story: a broker freezes. Reads from it time out; fresh metadata would name the new leaders, but the request
        for it goes to that same broker.
        """
        self._silent_until_s[silent.peer] = asyncio.get_running_loop().time() + AVOIDED_S
        for (broker, _), slot in self._slots.items():
            if broker == ANY_BROKER and slot.connection is not None and slot.connection.peer == silent.peer:
                slot.connection.close()

    def _is_waited_for(self, host: str, port: int) -> bool:
        """Whether a caller waits for an answer of this broker now: if it is frozen, another broker may answer."""
        if self._opening[host, port]:
            return True
        peer = peer_name(host, port)
        connections = (slot.connection for slot in self._slots.values())
        return any(one is not None and one.peer == peer and not one.is_idle for one in connections)

    def _is_avoided(self, host: str, port: int) -> bool:
        return self._silent_until_s.get(peer_name(host, port), 0.0) > asyncio.get_running_loop().time()

    def _learn(self, reply: messages.MetadataResponse) -> None:
        if self.cluster_id is None:
            self.cluster_id = reply.cluster_id
        elif reply.cluster_id != self.cluster_id:
            raise ForeignCluster(self.alias, first=self.cluster_id, other=str(reply.cluster_id))
        addresses = {BrokerId(broker.node_id): (broker.host, int(broker.port)) for broker in reply.brokers}
        if not addresses:
            return  # a broker that has just started may not know any broker, not even itself
        for (broker, channel), slot in list(self._slots.items()):
            before, now = self._addresses.get(broker), addresses.get(broker)
            if slot.connection is not None and before is not None and now not in (None, before):
                slot.connection.close()  # a broker that moved is reached at its new address
            if broker != ANY_BROKER and now is None and slot.is_unused:
                del self._slots[broker, channel]  # no caller will ask for a broker that left the cluster
                if slot.connection is not None:
                    slot.connection.close()
        self._addresses = addresses
