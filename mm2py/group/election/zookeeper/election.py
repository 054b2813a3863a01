"""Election through ZooKeeper: one session with kazoo's public client, and the shell around ``znodes.py``.

The znode decides which worker may claim leadership. The leader epoch of its claim in the control log then voids what an
older leader still writes. MirrorMaker 2 has no counterpart: its workers get their leader through Kafka's groups.

kazoo runs threads of its own; their reports arrive in the event loop in the same order. When a session has ended,
kazoo would start a new one by itself under another id. So it is stopped then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE
from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.kinds import HostPort
from mm2py.config.settings import GroupSettings, ZooKeeperSettings
from mm2py.errors import Mm2Error
from mm2py.group.election.backend import CandidateState
from mm2py.group.election.zookeeper.znodes import Confirmation, Node, candidates, name_prefix, own_node
from mm2py.kafka.errors import Backoff
from mm2py.kafka.security.tls import Tls, explain

_MUTE: Final = logging.Logger("kazoo of mm2py", level=logging.CRITICAL + 1)
"""kazoo's log contains what it sends, also passwords, and every attempt in a long outage."""
_TLS_REMEDY: Final = (
    "Compare zookeeper.ssl of this file with the servers' settings; zookeeper.connect has to name their"
    " secureClientPort."
)
_NO_ANSWER: Final = (exceptions.ConnectionLoss, exceptions.SessionExpiredError, exceptions.SessionMovedError)
_DENIED: Final = (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError)


class ElectionBlocked(Mm2Error):
    """This worker cannot be elected until something outside is repaired. No message contains a password."""

    retriable = True

    def __init__(self, what: str, *, remedy: str) -> None:
        super().__init__(what, remedy=f"{remedy} Nothing is lost meanwhile: this worker follows. mm2py keeps trying.")


class Interrupted(Exception):
    """The connection broke, or the session ended, before an answer came: the request may have been carried out."""


class NodeMissing(Exception):
    """There is no such node, or no parent for it."""


class ZooKeeperConnection(Enum):
    """The state of a session's connection to any of the servers."""

    UP = KazooState.CONNECTED
    BROKEN = KazooState.SUSPENDED
    """No server is connected; the session may live on."""
    ENDED = KazooState.LOST
    """The session has expired, for good."""


class ZooKeeperSession:
    """A session, from its creation to ``close``; call its methods in the event loop that created it."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        *,
        timeout_s: float,
        tls: Tls | None,
        on_change: Callable[[ZooKeeperSession], None],
    ) -> None:
        """Begin to connect. ``on_change`` is called when ``connection`` or a node's children have changed."""
        self.id = 0
        """Known once ``connection`` is UP; not negative."""
        self.connection = ZooKeeperConnection.BROKEN
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._on_change = on_change
        self._handler = _Handler(len(settings.servers), tls, self._loop)
        self._acl = CREATOR_ALL_ACL if settings.digest is not None and settings.set_acl else OPEN_ACL_UNSAFE
        digest = settings.digest.reveal() if settings.digest is not None else None
        self._client = KazooClient(
            hosts=_shown(settings.servers),
            timeout=timeout_s,
            handler=self._handler,
            auth_data=[("digest", digest)] if digest is not None else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=timeout_s / 60, backoff=2, max_jitter=0.4, max_delay=timeout_s / 6
            ),
            logger=_MUTE,
        )
        self._client.add_listener(self._heard)
        self._client.start_async()

    def unreachable(self) -> ElectionBlocked:
        """Return the error to log when no server has answered for long."""
        why, remedy = self._handler.last_failure
        return ElectionBlocked(
            f"No ZooKeeper of zookeeper.connect ({_shown(self._settings.servers)}) answers: {why}.",
            remedy=remedy or "Start it, correct zookeeper.connect, or let mm2py through to it.",
        )

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children; ``on_change`` is called when they change.

        Raises:
            Interrupted: there is no answer.
            NodeMissing: there is no such node.
            ElectionBlocked: it is not allowed, or refused.
        """
        # The same watch each time: kazoo keeps all that are different until one of them is called.
        return list(await self._answer("list", path, self._client.get_children_async(path, watch=self._heard_change)))

    async def exists(self, path: str) -> bool:
        """Return whether there is such a node. Raises as ``children`` does."""
        return await self._answer("look for", path, self._client.exists_async(path)) is not None

    async def ensure_path(self, path: str) -> None:
        """Create a node, and those above it that are missing. Raises as ``children`` does."""
        await self._answer("create", path, self._client.ensure_path_async(path, acl=self._acl))

    async def create(self, path: str, value: bytes) -> None:
        """Create a node that goes with the session and gets a number. Raises as ``children`` does."""
        pending = self._client.create_async(path, value, self._acl, ephemeral=True, sequence=True)
        await self._answer("create", path, pending)

    async def write(self, path: str, value: bytes) -> None:
        """Set a node's value, which takes a majority of the servers. Raises as ``children`` does."""
        await self._answer("write", path, self._client.set_async(path, value))

    async def close(self, *, timeout_s: float) -> None:
        """End the session, so that its nodes are deleted at once. If that takes longer than ``timeout_s``, they are
        deleted when the session expires."""
        self._client.remove_listener(self._heard)
        self._on_change = lambda _: None
        closed = asyncio.Event()

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            finally:
                self._post(closed.set)

        # Not asyncio.to_thread: a server that hangs would then delay the end of the process.
        threading.Thread(target=stop, name="zookeeper close", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await closed.wait()

    def _heard(self, state: str) -> None:
        """Called in kazoo's thread."""
        session, _ = self._client.client_id or (0, b"")
        self._post(lambda: self._set(ZooKeeperConnection(state), session & (2**64 - 1)))

    def _set(self, connection: ZooKeeperConnection, session: int) -> None:
        if self.connection is not ZooKeeperConnection.ENDED:
            self.connection, self.id = connection, session or self.id
            self._on_change(self)

    def _heard_change(self, _: object) -> None:
        """Called in kazoo's thread."""
        self._post(lambda: self._on_change(self))

    def _post(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call)

    async def _answer(self, what: str, path: str, pending: Any) -> Any:
        answered = asyncio.Event()
        pending.rawlink(lambda _: self._post(answered.set))
        await answered.wait()
        try:
            return pending.get(block=False)
        except _NO_ANSWER:
            raise Interrupted from None
        except exceptions.NoNodeError:
            raise NodeMissing from None
        except _DENIED:
            who = "a client without" if self._settings.digest is None else "the user of"
            raise ElectionBlocked(
                f"ZooKeeper does not let {who} zookeeper.auth.digest {what} {path}: wrong user or password,"
                " or another's node.",
                remedy="Check zookeeper.auth.digest, which has to be the same for the whole group, and the node's ACL"
                f" (zkCli.sh getAcl {path}); or give the group a chroot of its own in zookeeper.connect.",
            ) from None
        except exceptions.KazooException as error:
            raise ElectionBlocked(
                f"ZooKeeper does not {what} {path}: {type(error).__name__}.",
                remedy="Check that zookeeper.connect names a ZooKeeper 3.4 or later, and its log.",
            ) from None


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Makes connections with mm2py's own TLS instead of kazoo's (``others``), and keeps why one failed.

    Called in kazoo's thread.
    """

    def __init__(self, servers: int, tls: Tls | None, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.last_failure: tuple[str, str] = "none of these names has an address", ""
        """Why the last attempt to connect failed, and what to do. kazoo does not even ask for names without one."""
        self._servers = servers
        self._tls = tls
        self._loop = loop

    def create_connection(
        self, address: tuple[str, int], hostname: str = "", timeout: float = 10.0, **others: Any
    ) -> socket.socket:
        where = _shown([(hostname, address[1])])
        timeout /= self._servers  # a server that does not answer must leave time to save the session on another one
        try:
            made: socket.socket = super().create_connection(address, timeout=timeout)
        except OSError as error:
            self.last_failure = f"{where}: {error.strerror or type(error).__name__}", ""
            raise
        if self._tls is None:
            self.last_failure = f"{where} took the connection, and is no ZooKeeper or has no quorum", ""
            return made
        try:
            return self._secured(made, self._tls, hostname, timeout)
        except Exception as error:
            made.close()
            why, _ = explain(self._tls.settings, hostname, error) or (type(error).__name__, "")
            if isinstance(error, Mm2Error):
                why = error.what.rstrip(".")
            self.last_failure = f"{where}: {why}", _TLS_REMEDY
            raise ConnectionError(why) from error  # anything else would end kazoo's thread

    def _secured(self, made: socket.socket, tls: Tls, hostname: str, timeout: float) -> ssl.SSLSocket:
        context = asyncio.run_coroutine_threadsafe(tls.context(), self._loop).result(timeout)
        made.settimeout(timeout)
        secured = context.wrap_socket(made, server_hostname=hostname)
        self.last_failure = "the connection is secured, and there is no quorum, or no ZooKeeper behind it", ""
        return secured


def _shown(servers: Sequence[HostPort]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers)


CONFIRMATIONS_PER_TIMEOUT: Final = 6
"""How often the first candidate has its place confirmed in one session time-out. The others are notified of changes."""
CLOSE_MOST_S: Final = 2.0
"""How long to wait for a server that hangs when we leave. After that our node is deleted when the session expires."""


class ZooKeeperElection:
    """An ``ElectionBackend``: its worker may lead while its node is the first and ZooKeeper confirms that."""

    def __init__(
        self,
        group: GroupSettings,
        *,
        cluster_id: str,
        worker: str,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``cluster_id`` is the target cluster's; ``worker`` is written into our node, for people who look there."""
        assert group.zookeeper is not None  # noqa: S101  (config/groups.py sees to it)
        self.blocked: ElectionBlocked | None = None
        """Why this worker cannot be elected now; None if nothing prevents it."""
        self.path = f"{group.zookeeper.chroot}/mm2py/{group.name}/{cluster_id}/election"
        """The node whose children are the candidates."""
        self._settings: ZooKeeperSettings = group.zookeeper
        self._timeout_s = group.session_timeout_s
        self._worker = worker.encode()
        self._clock = clock
        self._backoff = Backoff(rng, first_s=0.05, most_s=2.0)
        self._log = log
        tls = group.zookeeper.tls
        self._tls = None if tls is None else Tls(tls, lambda why: log.warning("election.security_stale", why=why))
        self._confirmation: Confirmation | None = None
        self._changed = asyncio.Event()
        self._look_soon = asyncio.Event()
        self._logged = CandidateState.LOST

    @property
    def state(self) -> CandidateState:
        if self._confirmation is None:
            return CandidateState.LOST
        return self._confirmation.state(self._clock.boottime(), self._timeout_s)

    @property
    def evidence(self) -> str:
        confirmation = self._confirmation
        return confirmation.evidence if confirmation and self.state is CandidateState.MAY_LEAD else ""

    async def changed(self, seen: CandidateState) -> CandidateState:
        while self.state is seen:
            now_s = self._clock.boottime()
            falls_at_s = None if self._confirmation is None else self._confirmation.falls_at_s(now_s, self._timeout_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if falls_at_s is None else falls_at_s - now_s):
                    await self._changed.wait()
        return self.state

    async def run(self) -> None:
        """Be a candidate until cancelled, with one session after another. Cancelling closes the session: the next
        candidate is elected at once, or after the session time-out if no server answers within ``CLOSE_MOST_S``.
        """
        while True:
            session = ZooKeeperSession(
                self._settings, timeout_s=self._timeout_s, tls=self._tls, on_change=self._heard_of
            )
            try:
                await self._be_candidate(session)
            except ElectionBlocked as error:
                self._tell(error)
            finally:
                self._set(None)  # before the node is deleted: without it we may not lead
                await session.close(timeout_s=CLOSE_MOST_S)
            await asyncio.sleep(self._backoff.next_s())

    async def _be_candidate(self, session: ZooKeeperSession) -> None:
        """Return when the session has ended."""
        connected_at_s = self._clock.boottime()
        while session.connection is not ZooKeeperConnection.ENDED:
            self._look_soon.clear()
            if session.connection is ZooKeeperConnection.UP:
                connected_at_s = self._clock.boottime()
                with contextlib.suppress(Interrupted, NodeMissing, TimeoutError):
                    async with asyncio.timeout(self._timeout_s):
                        await self._look(session)
            elif self._clock.boottime() - connected_at_s >= self._timeout_s:
                self._tell(session.unreachable())
            self._log_state()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s / CONFIRMATIONS_PER_TIMEOUT):
                    await self._look_soon.wait()

    async def _look(self, session: ZooKeeperSession) -> None:
        """List the candidates, become one if we are none yet, and have it confirmed if we are the first."""
        try:
            nodes = await self._candidates(session)
            node = own_node(session.id, nodes)
            if node is None:
                self._set(None)
                await session.create(f"{self.path}/{name_prefix(session.id)}", self._worker)
                self._look_soon.set()
            elif node != nodes[0]:
                self._set(None)
            else:
                # A server that has lost the others still answers reads. A write needs a majority.
                asked_at_s = self._clock.boottime()
                await session.write(f"{self.path}/{node.name}", self._worker)
                self._set(Confirmation(node, asked_at_s, is_connected=session.connection is ZooKeeperConnection.UP))
        except NodeMissing:  # an operator deletes nodes
            self._set(None)
            raise
        self._backoff.reset()
        if self.blocked is not None:
            self.blocked = None
            self._log.info("election.unblocked")

    async def _candidates(self, session: ZooKeeperSession) -> tuple[Node, ...]:
        try:
            return candidates(await session.children(self.path))
        except NodeMissing:
            chroot = self._settings.chroot
            if chroot and not await session.exists(chroot):
                # If we created it, a typing error would make two groups of one.
                raise ElectionBlocked(
                    f"The chroot {chroot} of zookeeper.connect does not exist.",
                    remedy=f"Create it (zkCli.sh create {chroot}), or correct zookeeper.connect.",
                ) from None
            await session.ensure_path(self.path)
            return ()

    def _heard_of(self, session: ZooKeeperSession) -> None:
        if session.connection is not ZooKeeperConnection.UP and self._confirmation is not None:
            ended = session.connection is ZooKeeperConnection.ENDED
            self._set(None if ended else replace(self._confirmation, is_connected=False))
        self._look_soon.set()

    def _set(self, confirmation: Confirmation | None) -> None:
        self._confirmation = confirmation
        self._changed.set()
        self._changed = asyncio.Event()
        self._log_state()

    def _log_state(self) -> None:
        state = self.state
        if state is not self._logged:
            self._logged = state
            self._log.info("election.state", state=state.name, means=state.value, path=self.path)

    def _tell(self, blocked: ElectionBlocked) -> None:
        """Log each kind of obstacle once, until it is over."""
        if self.blocked is None or self.blocked.remedy != blocked.remedy:
            self._log.warning("election.blocked", why=blocked.what, remedy=blocked.remedy)
        self.blocked = blocked
