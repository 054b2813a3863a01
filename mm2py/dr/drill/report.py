"""The report of a drill: what it has proven, what it has not, times, and the digests of what was compared. Pure.

``proven`` is a claim. It is made only if every group would go on at the exact record, the flow is ready for a failover,
and the copies that were compared are equal; whatever is not known forbids it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from mm2py.backfill.verifying import merkle
from mm2py.backfill.verifying.results import PartitionResult, Verification, body
from mm2py.dr.drill.judgement import GREEN, GoesOn, GroupDrill
from mm2py.dr.readiness import ObstacleKind, RecoveryObstacle, RecoveryReadiness
from mm2py.records.author import Author
from mm2py.status.exit_codes import EXIT_DONE, EXIT_WAITS

FORMAT: Final = 1
"""The version of the object for programs. Within one version fields may be added; none changes its meaning."""
STEPS: Final[Mapping[str, str]] = {
    "positions": "find where each group goes on",
    "commits": "commit for all groups, and read it back",
    "first-records": "read the first record of each partition",
}
"""The steps of a failover that a drill measures."""
NOT_MEASURED: Final = "cutting off the flow's writers, your switch hook, and the start of your clients"
TOLD_MOST: Final = 20
"""How many places that are not proven the entry of a drill names."""


class DrillVerdict(StrEnum):
    """What a drill says."""

    PROVEN = "proven"
    NOT_PROVEN = "not-proven"


@dataclass(frozen=True, slots=True)
class DrillReport:
    """All that a drill has found out."""

    run: str
    flow: str
    source: str
    target: str
    begun_ms: int
    ended_ms: int
    author: Author
    to: str
    """To what a failover would lead: ``latest``, ``safe`` or a time."""
    to_ms: int | None
    readiness: RecoveryReadiness
    groups: Sequence[GroupDrill]
    steps: Mapping[str, float]
    """How long the steps of ``STEPS`` took, in seconds."""
    verification: Verification | None
    """None: nothing was compared, as was asked."""
    left_behind: Mapping[str, str]
    removed: Sequence[str] = ()
    """Shadow groups of earlier drills that were deleted."""

    @property
    def obstacles(self) -> list[RecoveryObstacle]:
        """What stands in the way of a failover. Groups are not among it: the drill looks at each itself."""
        return [one for one in self.readiness.obstacles if one.of_failover and one.kind is not ObstacleKind.GROUPS]

    @property
    def reasons(self) -> list[str]:
        """Why it is not proven; empty: it is."""
        return list(_reasons(self))

    @property
    def verdict(self) -> DrillVerdict:
        """What the drill says."""
        return DrillVerdict.NOT_PROVEN if self.reasons else DrillVerdict.PROVEN

    @property
    def exit_code(self) -> int:
        """The exit code of ``mm2py dr drill``."""
        return EXIT_WAITS if self.reasons else EXIT_DONE

    @property
    def recovery_s(self) -> float:
        """How long the steps took that were measured."""
        return sum(self.steps.get(name, 0.0) for name in STEPS)

    @property
    def counts(self) -> Counter[GoesOn]:
        """How many partitions of groups have each result."""
        return Counter(part.result for group in self.groups for part in group.partitions)

    @property
    def compared(self) -> int:
        """How many records of the source were compared."""
        return 0 if self.verification is None else sum(one.records for one in self.verification.partitions)

    @property
    def roots(self) -> tuple[str, str]:
        """One digest of all compared partitions, of the source and of the target; empty: nothing was compared."""
        if self.verification is None:
            return "", ""
        sides = [one.roots for one in self.verification.partitions if has_root(one)]
        if not sides:
            return "", ""
        return merkle.root([one for one, _ in sides]).hex(), merkle.root([other for _, other in sides]).hex()


def has_root(found: PartitionResult) -> bool:
    """Return whether a partition has digests: of compacted ones the latest record of each key is compared."""
    return bool(found.results) and not found.plan.facts.is_compacted


def _reasons(report: DrillReport) -> Iterator[str]:
    for one in report.obstacles:
        yield one.text
    if not any(not group.is_left for group in report.groups):
        yield "there is no group to drill"
    for group in report.groups:
        if group.why and not group.is_left:
            yield f"group {group.group}: {group.why}"
        for part in group.partitions:
            if part.result not in GREEN:
                yield f"group {group.group} in {part.topic}-{part.partition}: {part.text or part.result}"
    if report.verification is not None:
        if report.verification.is_different:
            yield "copies differ from their source"
        elif report.verification.has_problems:
            yield "not all copies could be compared"
        elif not report.compared:
            yield "no record was compared"


def verification_word(found: Verification | None) -> str:
    """Return what the comparison says, in a word or two."""
    if found is None:
        return "not compared"
    if found.is_different:
        return "different"
    return "not known" if found.has_problems else "equal"


def report_body(report: DrillReport) -> dict[str, Any]:
    """Return the report as an object for programs."""
    readiness, found = report.readiness, report.verification
    return {
        "format": FORMAT,
        "exit_code": report.exit_code,
        "run": report.run,
        "flow": report.flow,
        "verdict": str(report.verdict),
        "reasons": report.reasons,
        "begun_ms": report.begun_ms,
        "ended_ms": report.ended_ms,
        "author": report.author.fields,
        "to": report.to,
        "to_ms": report.to_ms,
        "recovery_time": {
            "seconds": round(report.recovery_s, 3),
            "steps": {name: round(report.steps.get(name, 0.0), 3) for name in STEPS},
            "not_measured": NOT_MEASURED,
        },
        "recovery_point": {
            "safe_at_ms": readiness.safe_at_ms,
            "lost_s": readiness.lost_s,
            "lost_records": readiness.lost_records,
            "is_lost_at_least": readiness.is_lost_at_least,
        },
        "obstacles": [asdict(one) for one in report.obstacles],
        "groups": [_group(one) for one in report.groups],
        "verification": None if found is None else _verification(report, found),
        "shadow_groups_left": dict(report.left_behind),
        "shadow_groups_removed": list(report.removed),
    }


def _group(one: GroupDrill) -> dict[str, Any]:
    return {
        "group": one.group,
        "state": one.state,
        "shadow": one.shadow,
        "is_proven": one.is_green,
        "is_left": one.is_left,
        "why": one.why,
        "partitions": [asdict(part) for part in one.partitions],
    }


def _verification(report: DrillReport, found: Verification) -> dict[str, Any]:
    source, target = report.roots
    told = body(found, report.exit_code)
    roots = {(one.plan.facts.topic, one.plan.facts.partition): one.roots for one in found.partitions if has_root(one)}
    for one in told["partitions"]:
        digests = roots.get((one["topic"], one["partition"]))
        one["source_root"], one["target_root"] = (None, None) if digests is None else [some.hex() for some in digests]
    return {
        "result": verification_word(found),
        "records": report.compared,
        "source_root": source,
        "target_root": target,
        **{key: told[key] for key in ("at_ms", "seconds", "partitions", "not_compared")},
        **found.settings,
    }


def places_told(report: DrillReport) -> list[dict[str, Any]]:
    """Return the places that are not proven, the first ones, for the entry of a drill."""
    found = [
        {
            "group": group.group,
            "topic": part.topic,
            "partition": part.partition,
            "result": part.result,
            "text": part.text,
        }
        for group in report.groups
        for part in group.partitions
        if not part.is_green
    ]
    return found[:TOLD_MOST]
