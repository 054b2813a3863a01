"""Election through ZooKeeper: the shell around ``znodes.py``.

The znode decides who may claim leadership. A leader is made by its claim in the control log, whose leader epoch turns
away whatever an older leader still writes. MirrorMaker 2 has nothing like it: its workers are led through Kafka's
groups.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import GroupSettings, ZooKeeperSettings
from mm2py.group.election.backend import CandidateState
from mm2py.group.election.znodes import Confirmation, Node, candidates, name_prefix, own_node
from mm2py.group.election.zookeeper_session import Connection, ElectionBlocked, Interrupted, NodeMissing, Session
from mm2py.kafka.retry import Backoff
from mm2py.kafka.security.tls import Tls

CONFIRMATIONS_PER_TIMEOUT: Final = 6
"""How often the first candidate has it confirmed, in one session time-out. The others are told of changes."""
CLOSE_MOST_S: Final = 2.0
"""For telling a server that hangs that we leave. After that our node goes when the session expires."""


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
        assert group.zookeeper is not None  # noqa: S101  (config/group_settings.py sees to it)
        self.blocked: ElectionBlocked | None = None
        """Why this worker cannot be elected just now; None if nothing prevents it."""
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
            session = Session(self._settings, timeout_s=self._timeout_s, tls=self._tls, on_change=self._heard_of)
            try:
                await self._be_candidate(session)
            except ElectionBlocked as error:
                self._tell(error)
            finally:
                self._set(None)  # before the node goes, and our right with it
                await session.close(timeout_s=CLOSE_MOST_S)
            await asyncio.sleep(self._backoff.next_s())

    async def _be_candidate(self, session: Session) -> None:
        """Return when the session has ended."""
        connected_at_s = self._clock.boottime()
        while session.connection is not Connection.ENDED:
            self._look_soon.clear()
            if session.connection is Connection.UP:
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

    async def _look(self, session: Session) -> None:
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
                # A server that has lost the others goes on answering reads. A write needs a majority.
                asked_at_s = self._clock.boottime()
                await session.write(f"{self.path}/{node.name}", self._worker)
                self._set(Confirmation(node, asked_at_s, is_connected=session.connection is Connection.UP))
        except NodeMissing:  # somebody deletes nodes
            self._set(None)
            raise
        self._backoff.reset()
        if self.blocked is not None:
            self.blocked = None
            self._log.info("election.unblocked")

    async def _candidates(self, session: Session) -> tuple[Node, ...]:
        try:
            return candidates(await session.children(self.path))
        except NodeMissing:
            chroot = self._settings.chroot
            if chroot and not await session.exists(chroot):
                # Created by us, a typing error would make two groups of one.
                raise ElectionBlocked(
                    f"The chroot {chroot} of zookeeper.connect does not exist.",
                    remedy=f"Create it (zkCli.sh create {chroot}), or correct zookeeper.connect.",
                ) from None
            await session.ensure_path(self.path)
            return ()

    def _heard_of(self, session: Session) -> None:
        if session.connection is not Connection.UP and self._confirmation is not None:
            ended = session.connection is Connection.ENDED
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
