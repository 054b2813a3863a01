"""What a cutover or a rollback would do, with positions, and what stands in its way: ``--plan``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mm2py.dr.cutover.pair import turned
from mm2py.dr.fence.plan import FencePlan, in_short
from mm2py.dr.fence.printout import plan_lines
from mm2py.dr.groups.judgement import MoveState
from mm2py.dr.groups.moving import JudgedGroup
from mm2py.dr.runner import RecoveryGoal
from mm2py.dr.states import PartitionOffsets
from mm2py.flow import Flow

LINES_MOST: Final = 20


@dataclass(frozen=True, slots=True)
class RunPreview:
    """A run before it has begun."""

    goal: RecoveryGoal
    flow: Flow
    """From where producers are to where they go: of a rollback, the flow of the undoing run."""
    topics: tuple[str, ...]
    """Those that move."""
    fenced: tuple[str, ...]
    """Those of them to which producers of the source can write."""
    fence: FencePlan
    ends: PartitionOffsets
    """Where the source's partitions end now."""
    copied: PartitionOffsets
    groups: tuple[JudgedGroup, ...]
    switch: str
    """The program of the switch hook, without its arguments; empty: an operator switches."""
    turns: bool
    """The flow is stopped, and the one that leads back is started; else both run."""
    coupled: tuple[str, ...]
    """Topics that do not move, and those that do, to which transactions write together."""
    notes: tuple[str, ...]
    """What is not known of that."""
    refused: tuple[str, ...]
    """Why it must not begin, each a sentence with its way out."""

    @property
    def lines(self) -> list[str]:
        """What ``--plan`` prints."""
        flow, back = self.flow, turned(self.flow)
        found = [f"{self.goal} of {flow}: {len(self.topics)} topic(s) move: {in_short(self.topics)}"]
        found.append(f"1. fence the producers of {flow.source}, and verify that nobody writes:")
        found += [f"     {line}" for line in plan_lines(self.fence, str(flow), None)]
        found.append(f"2. wait until {flow.target} has everything up to the fenced ends; now:")
        found += _cut([f"     {line}" for line in self._positions()]) or ["     no partition"]
        found.append(f"3. commit the groups on {flow.target}, as soon as each is final; now:")
        found += _cut([f"     {line}" for one in self.groups for line in _group(one)]) or ["     no group"]
        how = f"run {self.switch} switch" if self.switch else f"nothing: send clients to {flow.target} by hand"
        found.append(f"4. look once more at fence and ends, and then {how}")
        turning = f"stop {flow}, and start {back} behind what it has brought" if self.turns else f"{back} runs on"
        found.append(f"5. {turning}")
        found.append(f"6. lift the fence of producers on {flow.target}, if one stands; {flow.source} stays fenced")
        found += [f"transactions write to {one}" for one in self.coupled]
        found += [f"note: which transactions couple topics is not known: {one}" for one in self.notes]
        found += [f"refused: {one}" for one in self.refused]
        return found

    @property
    def body(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {
            "goal": str(self.goal),
            "flow": str(self.flow),
            "topics": list(self.topics),
            "fence": {
                "way": str(self.fence.wanted.way),
                "topics": list(self.fenced),
                "adds": [str(one) for one in self.fence.added],
                "unproven": [str(one) for one in self.fence.unproven],
                "notes": list(self.fence.notes),
            },
            "ends": dict(self.ends),
            "copied_to": dict(self.copied),
            "groups": [
                {
                    "group": one.move.group,
                    "state": str(one.move.state),
                    "why": one.move.why,
                    "partitions": {
                        f"{place.topic}-{place.partition}": {
                            "committed": place.committed,
                            "goes_on_in": f"{place.other_topic}-{place.partition}",
                            "goes_on_at": place.goes_on_at,
                        }
                        for place in one.move.partitions
                    },
                }
                for one in self.groups
            ],
            "switch": self.switch,
            "turns": self.turns,
            "coupled": list(self.coupled),
            "notes": list(self.notes),
            "refused": list(self.refused),
        }

    def _positions(self) -> list[str]:
        return [
            f"{partition}: ends at {end:,}, copied to {self.copied.get(partition, 0):,}"
            for partition, end in sorted(self.ends.items())
        ]


def _group(one: JudgedGroup) -> list[str]:
    move = one.move
    if move.state is MoveState.READY:
        return [f"group {move.group}:", *(f"  {place.line}" for place in move.partitions)]
    return [f"group {move.group}: {move.state}, {move.why}"]


def _cut(lines: list[str]) -> list[str]:
    return lines if len(lines) <= LINES_MOST else [*lines[:LINES_MOST], f"     and {len(lines) - LINES_MOST} more"]
