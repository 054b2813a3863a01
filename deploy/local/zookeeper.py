"""A real ZooKeeper on loopback, for the election backend that uses one: a single server, or an ensemble."""

import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.broker_settings import Setting, render_properties
from deploy.local.errors import ServerNotReady
from deploy.local.guardian import guard
from deploy.local.jars import jar_directory
from deploy.local.jvm import READY_TIMEOUT_S, JavaServer
from deploy.local.limits import check_limits
from deploy.local.ports import HOST, PortLease, lease_ports


@dataclass(frozen=True, slots=True)
class Member:
    """The part of one server in an ensemble: its number, and the ports of all servers."""

    number: int
    client: PortLease
    ports: Mapping[int, tuple[int, int]]
    """By number: the port for followers, and the port for elections."""


class ZooKeeper:
    """One ZooKeeper server, removed with its ``with`` block, at the latest with this process.

    Args:
        name: part of the directory's name.
        settings: properties of zoo.cfg, over a tick of 500 ms (sessions last 1 to 10 s).
        environment: further variables of the process.
        member: makes it part of an ensemble, see ``ZooKeeperEnsemble``.
    """

    def __init__(
        self,
        name: str = "zookeeper",
        *,
        settings: Mapping[str, Setting] | None = None,
        environment: Mapping[str, str] | None = None,
        member: Member | None = None,
    ) -> None:
        self.name = name
        self.directory: Path | None = None
        self._settings = dict(settings or {})
        self._environment = dict(environment or {})
        self._member = member
        self._server: JavaServer | None = None
        self._lease: PortLease | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def connect(self) -> str:
        """``host:port``, for clients."""
        return f"{HOST}:{self._running_lease().port}"

    @property
    def pid(self) -> int:
        """The process id; StarterError when it is not running."""
        return self._running_server().pid

    @property
    def log_path(self) -> Path:
        """The file that holds the log of all its runs."""
        return self._running_server().log_path

    @property
    def alive(self) -> bool:
        """Whether the process runs; a frozen one does."""
        return self._server is not None and self._server.alive

    def start(self) -> None:
        """Start and wait until it serves; after ``stop`` or ``kill`` with the same port and data.

        Raises:
            ServerNotReady: it ended, or did not serve in time; the end of its log is in the message.
        """
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start without waiting: a member of an ensemble serves only when a majority of it runs."""
        if self._server is None:
            self._lay_out()
        self._running_server().start()

    def await_ready(self) -> None:
        """Wait until it serves; raises as ``start`` does."""
        server = self._running_server()
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while "Mode: " not in self.status():
            if not server.alive or time.monotonic() > deadline_s:
                raise ServerNotReady(
                    f"ZooKeeper was not ready within {READY_TIMEOUT_S:.0f} s (exit code {server.exit_code}).",
                    log_path=server.log_path,
                )
            time.sleep(0.02)

    def status(self) -> str:
        """Return the server's own status report; empty if it does not answer within 2 seconds."""
        return _status(self._running_lease().port)

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._running_server().stop()

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self._running_server().kill()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing answers, and no session expires."""
        self._running_server().freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._running_server().thaw()

    def restart(self) -> None:
        """``stop`` and ``start``."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Kill the server and remove its data. A second call does nothing."""
        if self._server is not None:
            self._server.kill()
        if self._lease is not None:
            self._lease.release()
        if self.directory is not None:
            guard().remove_directory(self.directory)
        self._server = self._lease = self.directory = None

    def _lay_out(self) -> None:
        check_limits()
        jars = jar_directory()
        self.directory = guard().new_directory(self.name)
        self._lease = lease_ports(1)[0] if self._member is None else self._member.client
        main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
        ensemble: dict[str, Setting] = {}
        if self._member is not None:
            main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            ensemble = {"initLimit": 20, "syncLimit": 4}
            for number, (following, electing) in self._member.ports.items():
                ensemble[f"server.{number}"] = f"{HOST}:{following}:{electing}"
            (self.directory / "data").mkdir()
            (self.directory / "data" / "myid").write_text(str(self._member.number))
        properties: dict[str, Setting] = {
            "tickTime": 500,
            "admin.enableServer": False,
            "4lw.commands.whitelist": "srvr,ruok",
            "maxClientCnxns": 0,
            **ensemble,
            **self._settings,
            "clientPort": self._lease.port,
            "clientPortAddress": HOST,
            "dataDir": str(self.directory / "data"),
        }
        config_path = self.directory / "zoo.cfg"
        config_path.write_text(render_properties(properties))
        self._server = JavaServer(
            main_class,
            [str(config_path)],
            jars=jars,
            log_path=self.directory / "zookeeper.log",
            heap="256m",
            environment=self._environment,
        )

    def _running_server(self) -> JavaServer:
        if self._server is None:
            raise RuntimeError("this ZooKeeper has not been started")
        return self._server

    def _running_lease(self) -> PortLease:
        if self._lease is None:
            raise RuntimeError("this ZooKeeper has not been started")
        return self._lease


class ZooKeeperEnsemble:
    """Servers that agree by majority, removed with the ``with`` block. A killed one may be started again."""

    def __init__(self, servers: int = 3, *, settings: Mapping[str, Setting] | None = None) -> None:
        self._count = servers
        self._settings = dict(settings or {})
        self._held = ExitStack()
        self.servers: tuple[ZooKeeper, ...] = ()

    def __enter__(self) -> Self:
        leases = lease_ports(3 * self._count)
        for lease in leases:
            self._held.callback(lease.release)
        numbers = range(1, self._count + 1)
        ports = {n: (leases[3 * n - 2].port, leases[3 * n - 1].port) for n in numbers}
        self.servers = tuple(
            ZooKeeper(f"zookeeper-{n}", settings=self._settings, member=Member(n, leases[3 * n - 3], ports))
            for n in numbers
        )
        try:
            for server in self.servers:
                self._held.callback(server.close)
                server.launch()
            for server in self.servers:
                server.await_ready()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.close()

    @property
    def connect(self) -> str:
        """``host:port`` of all servers, for clients."""
        return ",".join(server.connect for server in self.servers)

    def leader(self) -> ZooKeeper:
        """Return the server that leads the others.

        Raises:
            LookupError: no server leads now.
        """
        for server in self.servers:
            if server.alive and "Mode: leader" in server.status():
                return server
        raise LookupError("no server of the ensemble says that it leads")


def _status(port: int) -> str:
    """Return the server's own status report; empty if it does not answer."""
    try:
        with socket.create_connection((HOST, port), timeout=2.0) as connection:
            connection.sendall(b"srvr")
            return connection.recv(4_096).decode("ascii", "replace")
    except OSError:
        return ""
