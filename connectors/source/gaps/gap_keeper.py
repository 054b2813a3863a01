"""The gaps of one flow: what is met is logged, counted and kept, and policies say what follows.

MM2 has none of this: it begins at the earliest record wherever a position does not fit, and says nothing. Here each
gap is named with its offsets, and ``on.source.gap`` and ``on.target.loss`` decide what follows. A partition that was
stopped goes on by a wish of theirs, or by an operator's command (``connectors/source/gaps/resumption.py``).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from connectors.source.discovery.starting_offsets import Beginning, Key
from connectors.source.gaps.kept_gaps import KeptGaps
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.metrics import Metrics
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition
from mm2py.records.status_record import Done, Gap, GapKind
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.copying.events import GapFound, SettingsChanged, SourceRewritten, TargetLost, UnexpectedMet
from mm2py.replication.copying.gap_policy import decide

SHOWN_MOST: Final = 50
"""Of a topic that is not what was copied so many partitions stand in its line of the log."""


class GapKeeper(KeptGaps):
    """The gaps of a flow, and what they stop. Owned by the flow's connector."""

    def __init__(
        self,
        settings: FlowSettings,
        target: Brokers,
        *,
        incarnation: Incarnation,
        metrics: Metrics,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        super().__init__(settings, target, incarnation=incarnation, clock=clock, rng=rng, log=log)
        self.stalled: dict[Key, GapFound] = {}
        """Partitions that a gap has stalled, with the latest."""
        self.held: set[Key] = set()
        """Partitions of topics that are refused because of a gap."""
        self.wishes: dict[Key, int | None] = {}
        """Stalled partitions that policy lets begin again: at a source offset, or at the start of the log (None)."""
        self._flow = settings.flow
        self._metrics = metrics

    @property
    def is_wanted(self) -> bool:
        return bool(self.wishes) or super().is_wanted

    def policy(self, kind: GapKind) -> Done:
        return decide(kind, on_source_gap=self._settings.on_source_gap, on_target_loss=self._settings.on_target_loss)

    def change(self, settings: FlowSettings) -> None:
        """Decide by other settings from the next gap on."""
        self._settings = settings

    def tell_policy(self, partitions: Iterable[CopiedPartition]) -> None:
        """Let partitions know whether they may pass over what has expired."""
        for part in partitions:
            stops = self.policy(GapKind.EXPIRED) is not Done.CONTINUED
            part.copier.handle(SettingsChanged(replace(part.copier.settings, stops_when_expired=stops)))

    def met(self, part: CopiedPartition, found: GapFound) -> None:
        """Take in what a copier met. Where it stalled and policy lets it go on, it begins again in the next round."""
        done = found.done if found.done is Done.CONTINUED else self.policy(found.kind)
        if found.done is not Done.CONTINUED:
            self._stop(part.key, found, done)
        extra = {"remedy": self._way_out(found.kind, part)} if done is Done.STOPPED else {}
        self._log.error(
            found.kind.event,
            topic=part.source_topic,
            partition=part.partition,
            why=found.text,
            first_offset=found.first_offset,
            last_offset=found.last_offset,
            done=done,
            **extra,
        )
        position = part.copier.position.source_offset
        if found.done is Done.CONTINUED and found.first_offset is not None:
            position = found.first_offset
        self._note(
            Gap(
                found.kind,
                part.source_topic,
                part.partition,
                found.first_offset,
                found.last_offset,
                done,
                position,
                found.text,
                self._clock.wall_ms(),
            )
        )

    def _stop(self, key: Key, found: GapFound, done: Done) -> None:
        """Note why a partition is stalled. Where one gap waits for an operator, no other lets it go on."""
        waits = key in self.stalled and key not in self.wishes
        self.stalled[key] = found
        if done is Done.STOPPED:
            self.wishes.pop(key, None)
        elif not waits:
            self.wishes[key] = found.go_on_at if done is Done.CONTINUED else None
            self.wake()

    def met_topic(self, kind: GapKind, name: str, positions: Mapping[int, StoredPosition], text: str) -> Done:
        """Take in that a topic is not what was copied, on either side. Returns what is to be done, by policy.

        Args:
            positions: what is stored of each of its partitions. What was noted before is not noted again.
        """
        done = self.policy(kind)
        noted: list[int] = []
        for partition, stored in positions.items():
            position = stored.next_source
            first, last = (None, position - 1) if kind.is_of_target else (position, None)
            lost = stored.target_topic_id if kind.is_of_target else stored.source_topic_id
            topic_id = None if lost is None else str(lost)
            gap = Gap(kind, name, partition, first, last, done, position, text, self._clock.wall_ms(), topic_id)
            if done is Done.STOPPED:
                self.held.add((name, partition))
            before = self._gaps.get((name, partition), {}).get(gap.key)
            if before is None or before.done is not done or before.is_of_another_topic(gap):
                self._note(gap)
                noted.append(partition)
        if noted:
            say = self._log.error if done is Done.STOPPED else self._log.warning
            shown = [f"{number}: {positions[number].next_source}" for number in sorted(noted)]
            more = [f"and {len(shown) - SHOWN_MOST} more, see mm2py gaps --all"] if len(shown) > SHOWN_MOST else []
            say(
                kind.event,
                topic=name,
                partitions=len(shown),
                next_source_offsets=", ".join([*shown[:SHOWN_MOST], *more]),
                why=text,
                done=done,
            )
        return done

    def begun(self, partitions: Iterable[CopiedPartition], beginning: Beginning) -> None:
        """Where a partition began at an operator's position, nothing waits for an operator any more."""
        partitions = list(partitions)
        self.tell_policy(partitions)
        for part in partitions:
            self.held.discard(part.key)
            self.stalled.pop(part.key, None)
            self.wishes.pop(part.key, None)
            stored = beginning.positions.get(part.key)
            if stored is not None and stored.by == BY_OPERATOR:
                self.settle(part.key)
            else:
                self._hold_stopped(part)

    def let_go(self, keys: Iterable[Key]) -> None:
        """See ``KeptGaps.let_go``."""
        keys = list(keys)
        super().let_go(keys)
        for key in keys:
            self.held.discard(key)
            self.stalled.pop(key, None)
            self.wishes.pop(key, None)

    def _hold_stopped(self, part: CopiedPartition) -> None:
        """Stop a partition once more that an earlier life has stopped, as long as nobody has accepted why.

        The stories: ten records of the copy are lost, and ten of somebody else stand there by now. The log ends where
        it should. Or the source is cut back, and what replaced its end is deleted: nothing tells of the cut any more,
        and on.source.gap=continue would pass over what has only expired. Or somebody else wrote to the remote partition
        of a flow that is to be exactly-once: the position is behind that, and nobody looks there again.
        """
        position = part.copier.position
        for gap in self.of(part.key):
            if not gap.is_open:
                continue
            met: TargetLost | SourceRewritten | UnexpectedMet
            if gap.kind is GapKind.TARGET_TRUNCATED and gap.position >= position.source_offset:
                end = position.target_offset or 0
                met = TargetLost(end, end, gap.text)
            elif (
                gap.kind is GapKind.TRUNCATED
                and gap.position == position.source_offset
                and gap.first_offset is not None
            ):
                met = SourceRewritten(gap.first_offset, gap.position - 1)
            elif gap.kind.is_unexpected and self._settings.exactly_once != "enabled":
                self.keep(replace(gap, done=Done.CONTINUED))
                continue
            elif gap.kind.is_unexpected and gap.position == position.source_offset:
                met = UnexpectedMet(gap.text, gap.kind, is_known=True)
            else:
                continue
            for effect in part.copier.handle(met):
                if isinstance(effect, GapFound):
                    self.met(part, effect)
            return

    def _way_out(self, kind: GapKind, part: CopiedPartition) -> str:
        """``--allow-recopy`` is a way only where the position fits no more: elsewhere it is not used."""
        at = f"{self._flow}:{part.source_topic}"
        accept = f"Let it go on with mm2py gaps FILE accept {at}:{part.partition}"
        if kind is GapKind.TRUNCATED:
            return f"{accept}, or restart with --allow-recopy {at} to copy the topic once more."
        if kind is GapKind.TARGET_TRUNCATED:
            return f"{accept}, or set on.target.loss=recopy to copy it once more."
        return f"{accept}."

    def _note(self, gap: Gap) -> None:
        self._metrics.count_gap(self._flow, gap.topic, gap.kind)
        self.keep(gap)


def positions_of(name: str, beginning: Beginning) -> dict[int, StoredPosition]:
    """Return what is stored of the partitions of a topic."""
    return {number: stored for (topic, number), stored in beginning.positions.items() if topic == name}
