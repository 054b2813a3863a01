"""A Kafka cluster in memory behind the port ``send(broker, request)``, under virtual time and with seeded faults.

    cluster = ClusterModel("source", VirtualClock(), random.Random(7), nodes=3)
    cluster.create_topic("orders", partitions=4)
    cluster.append("orders", 0, [Record(b"first", key=b"k"), b"second"])
    run_virtual(scenario(cluster))

``ClusterState`` has what a test does to the cluster (topics, appends, leaders, stops, truncation, cleaning). This
module adds the effects of the network and the broker's threads: latency, order, replication, faults. The rules for
producers are in ``producer_state.py`` and ``produce_rules.py``, for logs in ``log_model.py``.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, cast, overload

from kio.static.protocol import Payload

from mm2py.kafka.errors import BrokerUnreachable, UnsupportedVersion
from mm2py.kafka.messages import WriteTxnMarkersRequest
from mm2py.kafka.port import ANY_BROKER, BrokerId, FetchReply, FetchRequest, ProduceReply, ProduceRequest
from tests.fakes.broker.answers import answer
from tests.fakes.broker.cluster_state import ClusterState, Node, ProducerHandle, Topic, Transaction
from tests.fakes.broker.data_requests import PendingFetch, PendingProduce
from tests.fakes.broker.marker_model import PendingMarkers
from tests.fakes.broker.partition_model import NO_LEADER, Partition
from tests.fakes.broker.producer_state import Refused
from tests.fakes.broker.record_batch import Record, StoredRecord
from tests.fakes.faults import Faults, FaultSource
from tests.fakes.network_model import Call, Connection, Served, frozen, random_latency
from tests.fakes.virtual_time import VirtualClock

_TRACE_LENGTH: Final = 20_000


class ClusterModel(ClusterState):
    """The cluster as mm2py sees it: an implementation of ``mm2py.kafka.port.Brokers``.

    Args:
        latency_s: one-way latency between client and brokers, drawn evenly from this range.
        replication_s: time until the followers have the appended records, drawn evenly from this range.
        request_timeout_s: when ``send`` gives up; for a fetch, the request's own wait is added.
        connect_timeout_s: when ``send`` gives up on a broker that lets no packet through.
        produce_by_topic_id: True for brokers from 4.1 on; older ones find a recreated topic by its name
            (docs/broker-facts.md#m4).

    Attributes:
        faults: what goes wrong; set it with ``inject`` and end it with ``heal``.
        counts: faults that occurred, by kind, and requests, by API.
        complaints: harmful requests that a real broker would have accepted; a test ends with none.
        trace: (time, broker, channel, api, outcome) of the last requests.
    """

    def __init__(
        self,
        name: str,
        clock: VirtualClock,
        rng: random.Random,
        *,
        nodes: int = 1,
        broker_config: Mapping[str, str] | None = None,
        broker_session_timeout_s: float = 9.0,
        metadata_lag_s: float = 0.03,
        latency_s: tuple[float, float] = (0.0002, 0.002),
        replication_s: tuple[float, float] = (0.0005, 0.01),
        request_timeout_s: float = 30.0,
        connect_timeout_s: float = 10.0,
        produce_by_topic_id: bool = True,
    ) -> None:
        super().__init__(
            name,
            clock,
            rng,
            nodes=nodes,
            broker_config=broker_config,
            broker_session_timeout_s=broker_session_timeout_s,
            metadata_lag_s=metadata_lag_s,
        )
        self.request_timeout_s = request_timeout_s
        self.connect_timeout_s = connect_timeout_s
        self.produce_by_topic_id = produce_by_topic_id
        self.complaints: list[BaseException] = []
        self.hung_apis: set[str] = set()
        """Requests that are never answered, by name (``DescribeAcls``)."""
        self.unspoken_apis: set[str] = set()
        """Requests of which these brokers support no version."""
        self.cut_off_by: Callable[[object], bool] = lambda _: False
        """Requests at which a broker closes the connection, as at a request that it cannot parse."""
        self.trace: deque[tuple[float, int, str, str, str]] = deque(maxlen=_TRACE_LENGTH)
        self._source = FaultSource(random.Random(rng.getrandbits(64)))
        self._latency_s = random_latency(random.Random(rng.getrandbits(64)), *latency_s)
        self._round_trip_s = 2 * latency_s[0]
        self._replication_s = random_latency(random.Random(rng.getrandbits(64)), *replication_s)
        self._connections: dict[tuple[int, str], Connection] = {}
        self._left_behind: list[Connection] = []
        self._replicating: dict[int, int] = {}
        self._nemesis = 0

    # ---- faults

    @property
    def counts(self) -> Counter[str]:
        return self._source.counts

    @property
    def faults(self) -> Faults:
        return self._source.faults

    def inject(self, faults: Faults) -> None:
        """Let these faults occur from now on, in place of earlier ones. Call it during a run."""
        self._source.faults = faults
        self._nemesis += 1
        if faults.leader_move_every_s is not None:
            self._strike_later(faults.leader_move_every_s, self._move_some_leader, self._nemesis)
        if faults.broker_stop_every_s is not None:
            self._strike_later(faults.broker_stop_every_s, self._stop_some_broker, self._nemesis)

    def heal(self) -> None:
        """End all faults: brokers start, packets pass, silent connections break so that clients open new ones."""
        self._source.faults = Faults()
        self._nemesis += 1
        for node in self.nodes.values():
            self.join_broker(node.id)
            self.start_broker(node.id)
        for connection in list(self._connections.values()):
            if connection.silent:
                connection.break_off("connection reset by peer")

    def reset_connections(self, node: int | None = None) -> None:
        """Break every connection, or those to one broker."""
        for (broker, _), connection in list(self._connections.items()):
            if node is None or broker == node:
                connection.break_off("connection reset by peer")

    def hang_up(self, channels: str) -> None:
        """Close all connections of channels with this prefix, as when their client's process ends."""
        for (_, channel), connection in list(self._connections.items()):
            if channel.startswith(channels):
                connection.break_off("the client is gone")

    def _strike_later(self, mean_s: float, strike: Callable[[int], None], nemesis: int) -> None:
        wait_s = self._source.rng.expovariate(1.0 / mean_s)
        asyncio.get_running_loop().call_later(wait_s, self._strike, mean_s, strike, nemesis)

    def _strike(self, mean_s: float, strike: Callable[[int], None], nemesis: int) -> None:
        if nemesis == self._nemesis:
            strike(nemesis)
            self._strike_later(mean_s, strike, nemesis)

    def _move_some_leader(self, _: int) -> None:
        wanted = self.faults.leaders_of
        topics = [topic for name, topic in self.topics.items() if not wanted or name in wanted]
        partitions = [
            partition
            for topic in topics
            for partition in topic.partitions
            if partition.leader in partition.isr and self.nodes[partition.leader].up
        ]
        if partitions:
            chosen = self._source.rng.choice(partitions)
            self.move_leader(chosen.topic, chosen.index)
            self.counts["leader_move"] += 1

    def _stop_some_broker(self, _: int) -> None:
        if len(self.alive) < len(self.nodes):
            return
        rng = self._source.rng
        node = rng.choice(self.alive)
        clean = rng.random() >= self.faults.broker_kill_share
        self.counts["broker_stop" if clean else "broker_kill"] += 1
        self.stop_broker(node, clean=clean)
        self.later(rng.uniform(*self.faults.broker_down_s), partial(self.start_broker, node))

    # ---- the port

    @overload
    async def send(
        self, broker: BrokerId, request: FetchRequest, *, channel: str = ..., timeout_s: float | None = ...
    ) -> FetchReply: ...
    @overload
    async def send(
        self, broker: BrokerId, request: ProduceRequest, *, channel: str = ..., timeout_s: float | None = ...
    ) -> ProduceReply: ...
    @overload
    async def send(
        self, broker: BrokerId, request: Payload, *, channel: str = ..., timeout_s: float | None = ...
    ) -> Payload: ...

    async def send(
        self,
        broker: BrokerId,
        request: FetchRequest | ProduceRequest | Payload,
        *,
        channel: str = "control",
        timeout_s: float | None = None,
    ) -> object:
        """Send one request and return its reply, see ``mm2py.kafka.port.Brokers``; ``timeout_s`` None: the default."""
        loop = asyncio.get_running_loop()
        node = self._pick(broker)
        api = type(request).__name__.removesuffix("Request")
        self.counts[f"request {api}"] += 1
        if api in self.unspoken_apis:
            raise UnsupportedVersion(node.host, api, wanted=str(getattr(request, "__version__", "")), offered="none")
        connection = await self._connection(node, channel)
        if self.cut_off_by(request):
            await asyncio.sleep(self._latency_s())
            raise BrokerUnreachable(node.host, "it closed the connection")
        timeout_s = self.request_timeout_s if timeout_s is None else timeout_s
        sent: object = request
        if isinstance(request, FetchRequest):
            self.counts["partitions asked for"] += sum(len(topic.partitions) for topic in request.topics)
            timeout_s += request.max_wait_ms / 1000
        elif isinstance(request, ProduceRequest):
            sent = frozen(request)
        call = Call(api, sent, loop.create_future())
        connection.submit(call, timeout_s)
        try:
            return await call.future
        finally:
            self.trace.append((loop.time(), node.id, channel, api, call.outcome))

    def round_trip_s(self, broker: BrokerId) -> float | None:
        """Return the shortest possible round trip."""
        del broker
        return self._round_trip_s

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        """Close the connection of a channel."""
        connection = self._connections.get((broker, channel))
        if connection is not None:
            connection.break_off("mm2py closed the connection")

    def _pick(self, broker: BrokerId) -> Node:
        if broker != ANY_BROKER:
            if broker not in self.nodes:
                raise BrokerUnreachable(f"{self.name}: broker {broker}", "no such broker is known")
            return self.nodes[broker]
        living = [node for node in self.nodes.values() if node.up and node.reachable]
        return self._choices.choice(living or list(self.nodes.values()))

    async def _connection(self, node: Node, channel: str) -> Connection:
        """Return the open connection of this broker and channel, or make one."""
        known = self._connections.get((node.id, channel))
        if known is not None and known.usable:
            return known
        if not node.reachable:
            await asyncio.sleep(self.connect_timeout_s)
            raise BrokerUnreachable(node.host, f"no connection within {self.connect_timeout_s:g} s")
        if not node.up:
            await asyncio.sleep(self._latency_s())
            raise BrokerUnreachable(node.host, "connection refused")
        if known is not None and not known.dead:
            self._left_behind = [left for left in (*self._left_behind, known) if not left.idle]
        connection = Connection(
            f"{self.name} broker {node.id}",
            node.id,
            channel,
            self._serve,
            self._source,
            self._latency_s,
            ready_at_s=asyncio.get_running_loop().time() + 2 * self._latency_s(),
        )
        self._connections[node.id, channel] = connection
        return connection

    def _serve(self, node: int, request: object, done: Callable[[object], None]) -> Served | None:
        """Carry out a request that has reached its broker; ``done`` is called with the reply, now or later."""
        try:
            if isinstance(request, ProduceRequest):
                return PendingProduce(
                    self,
                    node,
                    request,
                    done,
                    by_topic_id=self.produce_by_topic_id,
                    interfere=self._source.produce_error,
                )
            if isinstance(request, FetchRequest):
                return PendingFetch(self, node, request, done, interfere=self._source.fetch_error)
            if type(request).__name__.removesuffix("Request") in self.hung_apis:
                return None
            if isinstance(request, WriteTxnMarkersRequest):
                return PendingMarkers(self, node, request, done)
            done(answer(self, node, cast("Payload", request)))
        except AssertionError as error:
            self.complaints.append(error)
            raise
        return None

    # ---- hooks of ClusterState

    def on_broker_stopped(self, node: int) -> None:
        for connection in [*self._connections.values(), *self._left_behind]:
            if connection.node == node:
                connection.broker_died()
        self._left_behind = [connection for connection in self._left_behind if not connection.dead]

    def cut_broker(self, node: int) -> None:
        super().cut_broker(node)
        for (broker, _), connection in self._connections.items():
            if broker == node:
                connection.silent = connection.deaf = True

    def replicate_later(self, partition: Partition) -> None:
        """Let the followers of a partition fetch after a delay; they also get what is appended until then."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            super().replicate_later(partition)
            return
        if len(partition.replicas) == 1 or id(partition) in self._replicating:
            return
        self._replicating[id(partition)] = 2  # the second round tells the followers of the new high watermark
        loop.call_later(self._replication_s(), self._replicate, partition)

    def _replicate(self, partition: Partition) -> None:
        if partition.leader == NO_LEADER or not self.nodes[partition.leader].up:
            del self._replicating[id(partition)]
            return
        moved = partition.replicate(self.alive, now_ms=self.clock.wall_ms())
        rounds = 2 if moved else self._replicating[id(partition)] - 1
        if rounds <= 0:
            del self._replicating[id(partition)]
            return
        self._replicating[id(partition)] = rounds
        asyncio.get_running_loop().call_later(self._replication_s(), self._replicate, partition)


__all__ = (
    "ClusterModel",
    "Faults",
    "Node",
    "ProducerHandle",
    "Record",
    "Refused",
    "StoredRecord",
    "Topic",
    "Transaction",
)
