"""Election through ZooKeeper: the shell around ``election_line.py``.

The znode decides who may claim; a leader is made by its claim in the control log, whose leader epoch turns away
whatever an older leader still writes. MirrorMaker 2 has nothing like it: its workers are led through Kafka's groups.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import GroupSettings, ZooKeeperSettings
from mm2py.kafka.retry import Backoff
from mm2py.kafka.tls import Tls
from mm2py.worker.candidacy import Standing
from mm2py.worker.election_line import (
    Connected,
    Disconnected,
    Ended,
    Event,
    Line,
    Place,
    Seen,
    Tick,
    ahead_of,
    own_place,
    place_prefix,
    places,
    step,
)
from mm2py.worker.zookeeper_errors import ChrootMissing, ElectionTroubled, KazooMissing, ZooKeeperUnreachable

if TYPE_CHECKING:
    from mm2py.worker.zookeeper_session import Session, State

LOOKS_PER_TIMEOUT: Final = 6
"""How often whoever stands first has it confirmed, in one session time-out; the others are told, and look twice."""
CLOSE_MOST_S: Final = 2.0
"""For telling a server that hangs that we leave. After that our node goes when the session expires."""


class ElectionByZooKeeper:
    """A ``Candidacy`` that holds while its node stands first and ZooKeeper confirms it."""

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
        """``cluster_id`` is the target cluster's; ``worker`` is written into our node, for whoever looks there.

        Raises:
            KazooMissing: the package is not installed.
        """
        try:
            from mm2py.worker import zookeeper_session  # noqa: PLC0415  (kazoo is an extra)
        except ImportError as error:
            raise KazooMissing from error
        assert group.zookeeper is not None  # noqa: S101  (config/group_settings.py sees to it)
        self.trouble: ElectionTroubled | None = None
        """Why we cannot be elected just now, for whoever asks; None if nothing stands in the way."""
        self._sessions = zookeeper_session
        self._settings: ZooKeeperSettings = group.zookeeper
        self._timeout_s = group.session_timeout_s
        self._parents = _parents(group.zookeeper.chroot, group.name, cluster_id)
        self._worker = worker.encode()
        self._clock = clock
        self._backoff = Backoff(rng, first_s=0.05, most_s=2.0)
        self._log = log
        tls = group.zookeeper.tls
        self._tls = None if tls is None else Tls(tls, lambda why: log.warning("election.security_stale", why=why))
        self._line = Line(self._timeout_s, is_over=True)
        self._published = Standing.LOST
        self._turned = asyncio.Event()
        self._wake = asyncio.Event()
        self._look_is_due = False
        self._watched: str | None = None
        """The node ahead of ours whose end we shall hear of."""
        self._life = 0
        """Counts sessions: what an older one still tells is not for this one."""
        self._is_gone = False
        self._granted_told_s = self._timeout_s
        self._down_since_s: float | None = None

    @property
    def path(self) -> str:
        """The node whose children are the contenders."""
        return self._parents[-1]

    @property
    def standing(self) -> Standing:
        return self._line.standing(self._clock.boottime())

    @property
    def may_claim(self) -> bool:
        return self.standing is Standing.LEAD

    @property
    def evidence(self) -> str:
        return self._line.evidence if self.may_claim else ""

    async def changed(self, seen: Standing) -> Standing:
        while self.standing is seen:
            await self._turned.wait()
        return self.standing

    async def run(self) -> None:
        """Contend until cancelled, with one session after another. Cancelling closes the session: the next worker in
        line is elected at once, or after the session's time-out if no server answers within ``CLOSE_MOST_S``.
        """
        while True:
            self._begin()
            session = self._sessions.Session(
                self._settings, timeout_s=self._timeout_s, tls=self._tls, on_state=partial(self._heard, self._life)
            )
            try:
                session.start()
                await self._contend(session)
            except ElectionTroubled as trouble:
                self._tell(trouble)
            finally:
                self._life += 1
                self._apply(Ended(self._clock.boottime()))  # before the node goes, and with it our right
                await session.close(timeout_s=CLOSE_MOST_S)
            await asyncio.sleep(self._backoff.next_s())

    def _begin(self) -> None:
        self._line = Line(self._timeout_s)
        self._is_gone = False
        self._look_is_due = False
        self._watched = None
        if self._down_since_s is None:
            self._down_since_s = self._clock.boottime()

    async def _contend(self, session: Session) -> None:
        """Return when the session is over; one that ended by our clock alone is kept until the server can be told."""
        looking: asyncio.Task[None] | None = None
        look_at_s = 0.0
        try:
            while not (self._line.is_over and (self._is_gone or self._line.is_connected)):
                now_s = self._clock.boottime()
                if looking is not None and looking.done():
                    # The connection broke, which is heard of otherwise; or somebody deletes nodes under our hands.
                    with contextlib.suppress(self._sessions.Interrupted, self._sessions.NodeMissing):
                        looking.result()
                    looking, look_at_s = None, now_s + self._pause_s()
                is_due = self._look_is_due or now_s >= look_at_s
                if looking is None and is_due and self._line.is_connected and not self._line.is_over:
                    self._look_is_due = False
                    looking = asyncio.create_task(self._look(session), name="election look")
                    looking.add_done_callback(lambda _: self._wake.set())
                self._tell_if_unreachable(session, now_s)
                await self._sleep(now_s, look_at_s if looking is None and self._line.is_connected else None)
                self._apply(Tick(self._clock.boottime()))
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.wait({looking})
                looking.cancelled() or looking.exception()

    async def _look(self, session: Session) -> None:
        """See who stands where, join the line if we do not stand in it, and have it confirmed if we stand first."""
        asked_at_s = self._clock.boottime()
        line = await self._contenders(session)
        place = own_place(self._line, line)
        if place is None and self._line.place is None and self._line.session is not None:
            await session.create(
                f"{self.path}/{place_prefix(self._line.session)}", self._worker, ephemeral=True, numbered=True
            )
            line = await self._contenders(session)
            place = own_place(self._line, line)
        if place is not None and place == line[0]:
            # Reads are answered by a server that lost touch with the others as well, a write never is.
            asked_at_s = self._clock.boottime()
            try:
                await session.write(f"{self.path}/{place.name}", self._worker)
            except self._sessions.NodeMissing:
                line = ()
        self._tell_that_all_is_well()
        self._apply(Seen(line, asked_at_s, self._clock.boottime()))
        ahead = ahead_of(place, line) if place is not None else None
        if ahead is not None and ahead.name != self._watched:
            try:
                await session.call_when_deleted(f"{self.path}/{ahead.name}", self._look_again)
                self._watched = ahead.name
            except self._sessions.NodeMissing:
                self._look_again()

    async def _contenders(self, session: Session) -> tuple[Place, ...]:
        try:
            return places(await session.children(self.path))
        except self._sessions.NodeMissing:
            await self._make(session, self._parents)
            return ()

    async def _make(self, session: Session, paths: Sequence[str]) -> None:
        """Create the last of these nodes, and those above it that are missing: to those that are there we may have no
        right.
        """
        if not paths:
            raise ChrootMissing(self._settings.chroot)
        try:
            await session.create(paths[-1])
        except self._sessions.NodeMissing:
            await self._make(session, paths[:-1])
            await session.create(paths[-1])

    def _heard(self, life: int, state: State) -> None:
        if life != self._life:
            return
        now_s = self._clock.boottime()
        match state:
            case self._sessions.Up(session, timeout_s):
                self._down_since_s = None
                self._tell_if_granted_otherwise(timeout_s)
                self._look_is_due = True
                self._apply(Connected(session, timeout_s, now_s))
            case self._sessions.Down():
                self._down_since_s = now_s
                self._watched = None
                self._apply(Disconnected(now_s))
            case self._sessions.Gone():
                self._is_gone = True
                self._apply(Ended(now_s))
        self._wake.set()

    def _look_again(self) -> None:
        self._watched = None
        self._look_is_due = True
        self._wake.set()

    def _apply(self, event: Event) -> None:
        self._line = step(self._line, event)
        standing = self.standing
        if standing is not self._published:
            self._published = standing
            self._turned.set()
            self._turned = asyncio.Event()
            self._log.info("election.standing", standing=standing.name, means=standing.value, path=self.path)

    def _pause_s(self) -> float:
        return self._line.timeout_s / (LOOKS_PER_TIMEOUT if self._line.is_first else 2)

    async def _sleep(self, now_s: float, look_at_s: float | None) -> None:
        """Wait for anything to happen, at most until the next thing is due."""
        dues_s = [now_s + self._timeout_s / 2, self._line.next_change_s(now_s), look_at_s]
        due_s = min(due_s for due_s in dues_s if due_s is not None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due_s - now_s)):
                await self._wake.wait()
        self._wake.clear()

    def _tell_if_unreachable(self, session: Session, now_s: float) -> None:
        if self._down_since_s is not None and now_s - self._down_since_s >= self._timeout_s:
            self._tell(ZooKeeperUnreachable(self._settings.servers, session.trouble, remedy=session.remedy))

    def _tell(self, trouble: ElectionTroubled) -> None:
        """Log each kind of trouble once, until it is over."""
        if type(trouble) is not type(self.trouble):
            self._log.warning("election.troubled", why=trouble.what, remedy=trouble.remedy)
        self.trouble = trouble

    def _tell_that_all_is_well(self) -> None:
        self._backoff.reset()
        if self.trouble is not None:
            self.trouble = None
            self._log.info("election.untroubled")

    def _tell_if_granted_otherwise(self, granted_s: float) -> None:
        if granted_s != self._granted_told_s:
            self._granted_told_s = granted_s
            self._log.warning(
                "election.session_timeout",
                asked_s=self._timeout_s,
                granted_s=granted_s,
                effect="the next leader is elected so long after the last was heard of",
                remedy="Set minSessionTimeout, maxSessionTimeout or tickTime of ZooKeeper, or session.timeout.ms.",
            )


def _parents(chroot: str, group: str, cluster_id: str) -> tuple[str, ...]:
    """Return the nodes that have to be there, from the top; the last holds the contenders."""
    below = ("mm2py", group, cluster_id, "election")
    return tuple(f"{chroot}/{'/'.join(below[: count + 1])}" for count in range(len(below)))
