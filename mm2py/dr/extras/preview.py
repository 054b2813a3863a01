"""What a reinstatement would do, with what the old side has more, and what stands in its way: ``--plan``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mm2py.dr.cutover.pair import turned
from mm2py.dr.extras.found import ExtrasFound
from mm2py.dr.extras.settlement import ExtrasChoice, ExtrasMemory
from mm2py.dr.fence.plan import FencePlan, in_short
from mm2py.dr.fence.printout import plan_lines
from mm2py.flow import Flow


@dataclass(frozen=True, slots=True)
class ReinstatePreview:
    """A reinstatement before it has begun."""

    flow: Flow
    """Of the failover: from the old side to the new one."""
    topics: tuple[str, ...]
    fence: FencePlan
    found: ExtrasFound | None
    """What only the old side has now; None: it could not be read."""
    choice: ExtrasChoice
    memory: ExtrasMemory
    turns: bool
    """Only one direction may be on."""
    refused: tuple[str, ...]
    """Why it must not begin, each a sentence with its way out."""

    @property
    def lines(self) -> list[str]:
        """What ``--plan`` prints."""
        flow, back = self.flow, turned(self.flow)
        told = [f"reinstate {flow.source} behind the failover of {flow}: {in_short(self.topics)}"]
        told.append(f"1. fence the producers of {flow.source}, and verify that nobody writes:")
        told += [f"     {line}" for line in plan_lines(self.fence, str(flow), None)]
        told.append(f"2. list what only {flow.source} has; now:")
        told += [f"     {line}" for line in ([] if self.found is None else self.found.lines)]
        told.append("3. settle it:")
        told += [f"     {line}" for line in self.decisions] or ["     nothing is to be decided"]
        begins = f"start {back} behind what {flow} has brought" if self.turns else f"let {flow} and {back} run"
        told.append(f"4. {begins}; {flow.source} stays fenced until mm2py dr failback")
        told += [f"refused: {one}" for one in self.refused]
        return told

    @property
    def decisions(self) -> list[str]:
        """What becomes of each topic of which only the old side has records."""
        if self.found is None:
            return []
        lines: list[str] = []
        for topic in self.found.topics:
            settled = self.memory.settled.get(topic)
            if settled is not None and self.memory.is_settled(self.found, topic):
                lines.append(f"{topic}: {settled.text} already")
                continue
            gap = any(one.has_gap for one in self.found.of_topic(topic))
            way = self.choice.way_of(topic, has_gap=gap)
            lines.append(f"{topic}: {'not decided: it stops there' if way is None else f'is {way}'}")
        return lines

    @property
    def body(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {
            "goal": "reinstate",
            "flow": str(self.flow),
            "topics": list(self.topics),
            "fence": {
                "way": str(self.fence.wanted.way),
                "adds": [str(one) for one in self.fence.added],
                "unproven": [str(one) for one in self.fence.unproven],
                "notes": list(self.fence.notes),
            },
            "extras": [] if self.found is None else self.found.body,
            "turns": self.turns,
            "refused": list(self.refused),
        }
