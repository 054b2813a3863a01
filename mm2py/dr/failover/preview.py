"""What a failover would do and what it would lose, with positions, and what stands in its way: ``--plan``. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mm2py.dr.failover.losses import FailoverLoss
from mm2py.dr.failover.placing import FailoverPoint, PlacedGroup
from mm2py.dr.fence.plan import in_short
from mm2py.flow import Flow

LINES_MOST: Final = 60


@dataclass(frozen=True, slots=True)
class FailoverPreview:
    """A failover before it has begun."""

    flow: Flow
    """From the cluster that is lost to the one where producers and groups go on."""
    at_ms: int
    topics: tuple[str, ...]
    point: FailoverPoint
    loss: FailoverLoss
    groups: tuple[PlacedGroup, ...]
    direction: str
    """Whether the flow is on, in words."""
    switch: str
    """The program of the switch hook, without its arguments; empty: an operator switches."""
    notes: tuple[str, ...]
    refused: tuple[str, ...]
    """Why it must not begin, each a sentence with its way out."""

    @property
    def lines(self) -> list[str]:
        """What ``--plan`` prints."""
        flow = self.flow
        found = [f"failover of {flow} to {self.point.text}: {len(self.topics)} topic(s): {in_short(self.topics)}"]
        found += self.loss.lines(self.at_ms)
        found.append(
            f"1. mark {flow} as ended on {flow.target} (it is {self.direction}), wait until its workers stop, fence"
            " those that do not answer, and see that no end of a copy moves"
        )
        found.append(f"2. commit the groups on {flow.target}; now:")
        groups = [f"     {line}" for one in self.groups for line in one.lines] or ["     no group"]
        found += groups[:LINES_MOST]
        if len(groups) > LINES_MOST:
            found.append(f"     and {len(groups) - LINES_MOST} more lines: --json has all")
        how = f"run {self.switch} switch" if self.switch else f"nothing: send clients to {flow.target} by hand"
        found.append(f"3. look once more that {flow} is ended, and then {how}")
        found.append(f"4. lift the fence of producers on {flow.target}, if one stands")
        found += [f"note: {one}" for one in self.notes]
        found += [f"refused: {one}" for one in self.refused]
        return found

    @property
    def body(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {
            "goal": "failover",
            "flow": str(self.flow),
            "to": self.point.word,
            "to_ms": self.point.at_ms,
            "topics": list(self.topics),
            "lost": self.loss.body,
            "groups": [one.body for one in self.groups],
            "direction": self.direction,
            "switch": self.switch,
            "notes": list(self.notes),
            "refused": list(self.refused),
        }
