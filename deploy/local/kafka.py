"""Real Kafka clusters on loopback for demo, tests and bench: one or three nodes, each both broker and controller.

    with KafkaCluster("west", settings={"message.max.bytes": 2_000_000}) as west:
        produce_to(west.bootstrap)
        west.brokers[0].kill()
        west.brokers[0].start()  # same port, same data

MirrorMaker 2 has no counterpart.
"""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.boot_image import BootImage, boot_image, kafka_uuid, run_storage_tool
from deploy.local.broker_settings import (
    CONTROLLER,
    Setting,
    all_listeners,
    broker_properties,
    plaintext_listener,
    render_properties,
)
from deploy.local.errors import PortTaken, ServerNotReady, StarterError, tail
from deploy.local.guardian import guard
from deploy.local.jars import jar_directory
from deploy.local.jvm import QUICK_START, READY_TIMEOUT_S, JavaServer
from deploy.local.limits import check_limits
from deploy.local.network import Namespace, inside
from deploy.local.ports import HOST, PortLease, lease_ports
from deploy.local.probe import ClusterView, NotReady, accepts_connections, cluster_view

MOST_PORT_CHOICES = 3
PLAINTEXT_ONLY: Mapping[str, str] = {"PLAINTEXT": "PLAINTEXT"}


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The ports of one broker: listener name to port, and the listener that is asked for readiness."""

    ports: Mapping[str, int]
    probed: str
    host: str = HOST
    network: Namespace | None = None

    def view(self) -> ClusterView:
        """Ask the broker for its cluster, from inside its network; NotReady as long as the broker does not serve."""
        with inside(self.network):
            view = cluster_view(self.host, self.ports[self.probed])
            for name, port in self.ports.items():
                if name != self.probed and not accepts_connections(self.host, port):
                    raise NotReady(f"its listener {name} does not answer")
        return view


class Broker:
    """One node of a cluster. Its ports and its data outlive ``stop``, ``kill`` and ``restart``."""

    def __init__(self, node_id: int, server: JavaServer, address: BrokerAddress, *, ready_timeout_s: float) -> None:
        self.node_id = node_id
        self.address = address
        self._server = server
        self._ready_timeout_s = ready_timeout_s

    @property
    def alive(self) -> bool:
        """Whether the process runs; a frozen one does."""
        return self._server.alive

    @property
    def pid(self) -> int:
        """The process id; StarterError when it is not running."""
        return self._server.pid

    @property
    def log_path(self) -> Path:
        """The file that holds the log of all runs of this broker."""
        return self._server.log_path

    @property
    def port(self) -> int:
        """The port of the first listener: this broker's part of ``KafkaCluster.bootstrap``."""
        return next(iter(self.address.ports.values()))

    def start(self, *, wait: bool = True) -> None:
        """Start the process, and by default wait until the broker serves. A running broker is left alone.

        Raises:
            ServerNotReady: it ended, or did not serve in time; the end of its log is in the message.
        """
        self._server.start()
        if wait:
            self.await_ready()

    def await_ready(self, *, brokers: int = 1) -> None:
        """Wait until the broker answers that its cluster has at least this many brokers, itself among them.

        Raises:
            PortTaken: it ended because one of its ports was taken.
            ServerNotReady: it ended for another reason, or did not serve in time.
        """
        deadline_s = time.monotonic() + self._ready_timeout_s
        reason = ""
        while time.monotonic() < deadline_s:
            if not self._server.alive:
                self._raise_ended()
            try:
                view = self.address.view()
                if self.node_id in view.broker_ids and len(view.broker_ids) >= brokers:
                    return
                reason = f"it sees the brokers {sorted(view.broker_ids)}"
            except NotReady as error:
                reason = str(error)
            time.sleep(0.02)  # readiness is not announced; the request costs the broker a microsecond
        raise ServerNotReady(
            f"Broker {self.node_id} was not ready within {self._ready_timeout_s:.0f} s: {reason}.",
            log_path=self.log_path,
        )

    def stop(self, *, timeout_s: float = 30.0) -> None:
        """SIGTERM: leaderships move away, the log closes cleanly. SIGKILL when that takes longer than the time-out."""
        self._server.stop(timeout_s=timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self._server.kill()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        self._server.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._server.thaw()

    def restart(self) -> None:
        """``stop`` and ``start``."""
        self.stop()
        self.start()

    def _raise_ended(self) -> None:
        ended = f"Broker {self.node_id} ended with exit code {self._server.exit_code} before it was ready."
        end_of_log = tail(self.log_path)
        if "Address already in use" in end_of_log or "BindException" in end_of_log:
            raise PortTaken(ended, log_path=self.log_path)
        raise ServerNotReady(ended, log_path=self.log_path)


class KafkaCluster:
    """A cluster of one or three nodes on 127.0.0.1, removed with its ``with`` block, at the latest with this process.

    Args:
        name: part of the directory's name, visible in a process list.
        nodes: how many; each is broker and controller, with ids from 1.
        settings: broker properties of all nodes, over the small defaults of ``broker_settings``.
        node_settings: further properties of single nodes, by node id.
        listeners: name to security protocol; the first is the one that ``bootstrap`` names.
        kafka_version: another version than the pom's; fetched when first needed.
        heap: for each node.
        jvm_options: by default those that start fastest; a benchmark passes ``()`` for the JVM's own.
        environment: further variables of the processes, such as ``KRB5_CONFIG``.
        format_options: arguments to StorageTool, such as ``("--add-scram", "SCRAM-SHA-256=[name=a,password=b]")``.
        ready_timeout_s: how long a node may take from start to serving.
        network: the network namespace of the nodes, by default 127.0.0.1. Only clients in it, or wired to it, reach
            them.
    """

    def __init__(
        self,
        name: str = "kafka",
        *,
        nodes: int = 1,
        settings: Mapping[str, Setting] | None = None,
        node_settings: Mapping[int, Mapping[str, Setting]] | None = None,
        listeners: Mapping[str, str] = PLAINTEXT_ONLY,
        kafka_version: str | None = None,
        heap: str = "512m",
        jvm_options: Sequence[str] = QUICK_START,
        environment: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        ready_timeout_s: float = READY_TIMEOUT_S,
        network: Namespace | None = None,
    ) -> None:
        if nodes < 1:
            raise ValueError("a cluster has at least one node")
        self.name = name
        self.cluster_id = kafka_uuid()
        self.directory: Path | None = None
        self.brokers: list[Broker] = []
        self._node_ids = range(1, nodes + 1)
        self._settings = dict(settings or {})
        self._node_settings = dict(node_settings or {})
        self._listeners = all_listeners(listeners)
        self._kafka_version = kafka_version
        self._heap = heap
        self._jvm_options = tuple(jvm_options)
        self._environment = dict(environment or {})
        self._format_options = tuple(format_options)
        self._ready_timeout_s = ready_timeout_s
        self._network = network
        self._host = HOST if network is None else network.address
        self._leases: list[PortLease] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """``host:port,...`` of the first listener of every node."""
        return self.bootstrap_for(next(iter(self._listeners)))

    @property
    def internal_bootstrap(self) -> str:
        """``host:port,...`` of a plaintext listener: ``bootstrap`` itself unless that is TLS or SASL."""
        return self.bootstrap_for(plaintext_listener(self._listeners))

    def bootstrap_for(self, listener: str) -> str:
        """``host:port,...`` of the named listener of every node."""
        return ",".join(f"{broker.address.host}:{broker.address.ports[listener]}" for broker in self.brokers)

    def broker(self, node_id: int) -> Broker:
        """Return the broker with that node id."""
        return self.brokers[self._node_ids.index(node_id)]

    def start(self) -> None:
        """Format, start all nodes, and wait until each sees all others. On a started cluster: start the stopped nodes.

        Raises:
            StarterError: its kind says what is missing; nothing is left behind.
        """
        if self.directory is not None:
            self._start_brokers()
            return
        check_limits()
        jars = jar_directory(self._kafka_version)
        image = boot_image(jars)
        self.directory = guard().new_directory(self.name)
        try:
            for choice in range(1, MOST_PORT_CHOICES + 1):
                self._lay_out(jars, image, self.directory)
                try:
                    self._start_brokers()
                    return
                except PortTaken:
                    if choice == MOST_PORT_CHOICES:
                        raise
                    self._end_brokers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill all nodes, remove all data, release the ports. A second call does nothing."""
        self._end_brokers()
        if self.directory is not None:
            guard().remove_directory(self.directory)
            self.directory = None

    def rebuild(self) -> None:
        """Kill all nodes, remove all data, and start another cluster at the same addresses, with an id of its own.

        Raises:
            StarterError: as ``start``.
        """
        if self.directory is None or self._format_options:
            raise StarterError("Only a started cluster without options of its own can be rebuilt.", remedy="Start it.")
        for broker in self.brokers:
            broker.kill()
        self.cluster_id = kafka_uuid()
        image = boot_image(jar_directory(self._kafka_version))
        for broker in self.brokers:
            log_dir = _log_dir(self.directory, broker.node_id)
            shutil.rmtree(log_dir)
            image.format_log_directory(log_dir, node_id=broker.node_id, cluster_id=self.cluster_id)
        self._start_brokers()

    def _start_brokers(self) -> None:
        for broker in self.brokers:
            broker.start(wait=False)
        for broker in self.brokers:
            broker.await_ready(brokers=len(self.brokers))

    def _end_brokers(self) -> None:
        for broker in self.brokers:
            broker.kill()
        for lease in self._leases:
            lease.release()
        self.brokers, self._leases = [], []

    def _lay_out(self, jars: Path, image: BootImage, directory: Path) -> None:
        names = [CONTROLLER, *self._listeners]
        self._leases = lease_ports(len(self._node_ids) * len(names))
        chosen = iter([lease.port for lease in self._leases])
        ports = {node_id: {name: next(chosen) for name in names} for node_id in self._node_ids}
        with ThreadPoolExecutor(len(self._node_ids)) as pool:
            self.brokers = list(
                pool.map(lambda node_id: self._new_broker(node_id, ports, jars, image, directory), self._node_ids)
            )

    def _new_broker(
        self, node_id: int, ports: Mapping[int, Mapping[str, int]], jars: Path, image: BootImage, directory: Path
    ) -> Broker:
        log_dir = _log_dir(directory, node_id)
        shutil.rmtree(log_dir, ignore_errors=True)
        config_path = directory / f"broker-{node_id}.properties"
        properties = broker_properties(
            node_id,
            host=self._host,
            ports=ports,
            listeners=self._listeners,
            log_dir=str(log_dir),
            settings={**self._settings, **self._node_settings.get(node_id, {})},
        )
        config_path.write_text(render_properties(properties))
        if self._format_options:
            run_storage_tool(jars, config_path, self.cluster_id, self._format_options)
        else:
            image.format_log_directory(log_dir, node_id=node_id, cluster_id=self.cluster_id)
        server = JavaServer(
            "kafka.Kafka",
            [str(config_path)],
            jars=jars,
            log_path=directory / f"broker-{node_id}.log",
            heap=self._heap,
            jvm_options=self._jvm_options,
            extra_jvm_options=image.jvm_options,
            environment=self._environment,
            network=self._network,
        )
        client_ports = {name: ports[node_id][name] for name in self._listeners}
        address = BrokerAddress(client_ports, plaintext_listener(self._listeners), self._host, self._network)
        return Broker(node_id, server, address, ready_timeout_s=self._ready_timeout_s)


def _log_dir(directory: Path, node_id: int) -> Path:
    return directory / f"data-{node_id}"


@contextmanager
def start_clusters(clusters: Sequence[KafkaCluster]) -> Iterator[list[KafkaCluster]]:
    """Start several clusters at once, and close them all at the end of the ``with`` block.

    Raises:
        StarterError: the first that failed; the others are closed as well.
    """
    try:
        if clusters:
            with ThreadPoolExecutor(len(clusters)) as pool:
                for started in [pool.submit(cluster.start) for cluster in clusters]:
                    started.result()
        yield list(clusters)
    finally:
        for cluster in clusters:
            cluster.close()
