"""Questions about offsets to both clusters of a flow, or to the target alone if the source does not answer.

The target alone answers them in part. When the source is lost, operators move its groups, and need the known offsets
soon.

Counterpart: RemoteClusterUtils of MirrorMaker 2, which always asks the target alone.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.flow_offsets import FlowOffsets
from mm2py.errors import Mm2Error
from mm2py.status.cluster_inquiry import InquirySide, why_not_both
from mm2py.status.consumer_group_inquiry import ConsumerGroupInquiry
from mm2py.status.consumer_groups import ConsumerGroupReport, report_of
from mm2py.status.offset_inquiry import Question, ask_where, offsets_of
from mm2py.status.offset_report import OffsetReport

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class TargetUnread(Mm2Error):
    """The target does not answer, or refuses."""

    def __init__(self, why: str) -> None:
        super().__init__(why, remedy="")


class GroupsTold(NamedTuple):
    """The answer about the groups of a flow."""

    at_ms: int
    """When the clusters were asked, by our clock."""
    unread: str
    """Why the source does not answer; empty if it does."""
    reports: list[ConsumerGroupReport]


class OffsetsTold(NamedTuple):
    """The answer where offsets are in the other log."""

    at_ms: int
    """When the clusters were asked, by our clock."""
    unread: str
    """Why the source does not answer; empty if it does."""
    reports: list[OffsetReport]


class GroupsQuestion:
    """The consumer groups of a flow. Each question reads only what is new in topics; ask one at a time."""

    def __init__(
        self, settings: FlowSettings, source: InquirySide, target: InquirySide, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        self._source = source
        self._target = target
        self._clock = clock
        self._inquiry = ConsumerGroupInquiry(settings, source.brokers, target.brokers, log)

    async def ask(self) -> GroupsTold:
        """Return what both clusters say, or the target alone. Raises: TargetUnread."""
        at_ms = self._clock.wall_ms()

        async def ask(*, is_target_alone: bool) -> list[ConsumerGroupReport]:
            return report_of(await (self._inquiry.look_at_target() if is_target_alone else self._inquiry.look()))

        unread, reports = await ask_both_or_target("asking for groups", self._source, self._target, ask)
        return GroupsTold(at_ms, unread, reports)


class OffsetsQuestion:
    """Offsets of a flow. Each question reads only what is new in topics; ask one at a time."""

    def __init__(
        self, settings: FlowSettings, source: InquirySide, target: InquirySide, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self._clock = clock
        self._log = log
        self._kept: FlowOffsets | None = None

    async def ask(self, question: Question) -> OffsetsTold:
        """Return what both clusters say, or the target alone. Raises: TargetUnread."""

        async def ask(*, is_target_alone: bool) -> list[OffsetReport]:
            settings, source, target = self._settings, self._source.brokers, self._target.brokers
            tables = self._kept or offsets_of(settings, source, target, self._log)
            self._kept = None  # if this is cancelled, the tables may lack records
            found = await ask_where(
                settings, question, source, target, self._log, offsets=tables, is_target_alone=is_target_alone
            )
            self._kept = tables
            return found

        at_ms = self._clock.wall_ms()
        return OffsetsTold(at_ms, *await ask_both_or_target("reading the ledger", self._source, self._target, ask))


class _Ask(Protocol[T_co]):
    async def __call__(self, *, is_target_alone: bool) -> T_co: ...


async def ask_both_or_target(doing: str, source: InquirySide, target: InquirySide, ask: _Ask[T]) -> tuple[str, T]:
    """Return why the source does not answer, empty if it does, and the answer. Raises: TargetUnread."""
    await asyncio.gather(source.probe(), target.probe())
    found: list[T] = []

    async def of_both() -> None:
        found.append(await ask(is_target_alone=False))

    async def of_target() -> None:
        found.append(await ask(is_target_alone=True))

    unread = await why_not_both(doing, source, target, of_both)
    if unread and (why := await target.why_not(doing, of_target)):
        raise TargetUnread(why)
    return unread, found[-1]
