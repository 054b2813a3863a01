"""The outcome of a fault case for one mirror: counts, recovery times, gaps in its log; and the table of all. Pure."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.checker.verdict import Verdict

WARNED: Final = "warned"
MENTIONED: Final = "mentioned"
SILENT: Final = "silent"
LINES_KEPT: Final = 4
LINE_LENGTH_KEPT: Final = 600
_LEVEL: Final = re.compile(r"\b(TRACE|DEBUG|INFO|WARN|WARNING|ERROR)\b")
_LOUD: Final = frozenset({"WARN", "WARNING", "ERROR"})
_OFFSET: Final = re.compile(r"offsets?\b\D{0,4}(\d+)(?:\s*(?:to|-|\.\.)\s*(\d+))?")
_RECREATED: Final = re.compile(r"anew|recreat|topic id", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from a fault until a consumer of the copy saw the first record that was written after it.

    ``all_s`` is the same for the slowest partition. None: no such record came in time.
    """

    fault: str
    first_s: float | None
    all_s: float | None


@dataclass(frozen=True, slots=True)
class Reported:
    """Whether the log reports missing records to an operator, and the lines that do."""

    level: str
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """What the checker counted in the partitions of a copy."""

    records: int
    lost: int
    """Records that are not in the copy, though later ones of the partition are."""
    not_copied: int
    """Records that are not in the copy, and no later one is: copying stopped before them."""
    repeated: int
    rewinds: int
    reordered: int
    changed: int

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> Counts:
        found = list(verdicts)

        def breaches(invariant: str) -> int:
            return sum(verdict.breaches[invariant] for verdict in found)

        not_copied = sum(verdict.unreached_records for verdict in found)
        return cls(
            records=sum(verdict.source_records for verdict in found),
            lost=breaches("I1") - not_copied,
            not_copied=not_copied,
            repeated=sum(verdict.repeated_records for verdict in found),
            rewinds=sum(len(verdict.rewinds) for verdict in found),
            reordered=breaches("I2"),
            changed=breaches("I5"),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case of one mirror."""

    case: str
    mirror: str
    seed: int
    counts: Counts | None = None
    recoveries: Sequence[Recovery] = ()
    seen_twice: int | None = None
    """Duplicates that a consumer of the copy counted by the payloads, independently of the checker."""
    gap_records: int = 0
    """Records that were deleted before they could be copied; for recreated topics those that are not in the copy."""
    reported: Reported | None = None
    restarts_by_hand: int = 0
    """How often the mirror stopped copying and had to be restarted by hand."""
    seconds: float = 0.0
    load_average: float = 0.0
    """The machine's, when the case started."""
    findings: Sequence[str] = ()
    """The first breaches that the checker found."""
    course: Sequence[tuple[float, str]] = ()
    """Actions and observations, in seconds since the case started."""
    failed: str | None = None
    """Why the case itself could not be finished; nothing is counted then."""

    def save(self, path: Path, conditions: Mapping[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps({"conditions": dict(conditions), "outcome": asdict(self)}, indent=1) + "\n")
        unfinished.replace(path)


@dataclass(frozen=True, slots=True)
class Kept:
    """An outcome in a file, and the conditions under which it was measured."""

    outcome: Outcome
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Kept:
        """Read what ``Outcome.save`` wrote.

        Raises:
            ValueError, KeyError, TypeError: the file has another format.
        """
        content = json.loads(path.read_text())
        fields = content["outcome"]
        fields["counts"] = fields["counts"] and Counts(**fields["counts"])
        if reported := fields["reported"]:
            fields["reported"] = Reported(reported["level"], tuple(reported["lines"]))
        fields["recoveries"] = tuple(Recovery(**recovery) for recovery in fields["recoveries"])
        fields["findings"] = tuple(fields["findings"])
        fields["course"] = tuple((at_s, what) for at_s, what in fields["course"])
        return cls(Outcome(**fields), content["conditions"])


# What a log reports of a gap


def gap_report(log_text: str, topic: str, gaps: Mapping[int, tuple[int, int]]) -> Reported:
    """Return whether a log names missing records.

    Args:
        topic: the source topic.
        gaps: for each partition the missing offsets: the first, and the one after the last.
    Returns:
        ``WARNED``: for each gap a warning or an error names topic and first or last offset. ``MENTIONED``: lines of a
        lower level name the topic and the offsets of each gap. ``SILENT``: neither.
    """
    lines = _lines_naming(log_text, topic)
    level, kept = WARNED, []
    for number, (first, end) in gaps.items():
        own = [
            line for line in lines if re.search(rf"{_named(topic)}(-{number}\b|\b.*\bpartition[= ]{number}\b)", line)
        ]
        loud = [line for line in own if _is_loud(line) and _offsets(line, topic) & {first, end - 1, end}]
        quiet = [line for line in own if _offsets(line, topic) & {first, end}]
        if loud:
            kept += loud[:1]
        elif {first, end} <= {offset for line in quiet for offset in _offsets(line, topic)}:
            level = MENTIONED if level != SILENT else SILENT
            kept += quiet[-2:]
        else:
            level = SILENT
    return Reported(level if gaps else SILENT, _shortened(kept))


def recreation_report(log_text: str, topic: str) -> Reported:
    """Return whether a log reports that a source topic was recreated."""
    told = [line for line in _lines_naming(log_text, topic) if _RECREATED.search(line)]
    loud = [line for line in told if _is_loud(line)]
    return Reported(WARNED if loud else MENTIONED if told else SILENT, _shortened(loud or told))


def _lines_naming(log_text: str, topic: str) -> list[str]:
    return [line for line in log_text.splitlines() if re.search(rf"{_named(topic)}(?!\w)", line)]


def _named(topic: str) -> str:
    """Return a pattern that matches the topic, but no remote topic, and no topic whose name ends with this name."""
    return rf"(?<![\w.-]){re.escape(topic)}"


def _is_loud(line: str) -> bool:
    level = _LEVEL.search(line)
    return level is not None and level[1] in _LOUD


def _offsets(line: str, topic: str) -> set[int]:
    rest = re.sub(rf"{re.escape(topic)}-\d+", "", line)
    return {int(number) for found in _OFFSET.findall(rest) for number in found if number}


def _shortened(lines: Sequence[str]) -> list[str]:
    return [line[:LINE_LENGTH_KEPT] for line in lines[:LINES_KEPT]]


# The table

HEAD: Final = (
    "| case | mirror | faults | records | lost | not copied | repeated | reordered | first record again, s | "
    "all partitions again, s | restarts by hand | gap |"
)


def table(outcomes: Iterable[Outcome], cases: Mapping[str, str], mirrors: Mapping[str, str]) -> str:
    """Return the table as Markdown, in the order of ``cases`` and ``mirrors``, which give the titles."""
    by_key = {(outcome.case, outcome.mirror): outcome for outcome in outcomes}
    lines = [HEAD, "|" + " --- |" * HEAD.count(" | ") + " --- |"]
    for case, case_title in cases.items():
        for mirror, mirror_title in mirrors.items():
            if outcome := by_key.get((case, mirror)):
                lines.append(f"| {case_title} | {mirror_title} | {' | '.join(_cells(outcome))} |")
    return "\n".join(lines)


def _cells(outcome: Outcome) -> list[str]:
    counts = outcome.counts
    if counts is None:
        return [f"failed: {outcome.failed}".replace("|", "/").splitlines()[0], *[""] * 9]
    return [
        str(len(outcome.recoveries)),
        f"{counts.records:,}",
        _bold_unless_0(counts.lost),
        _bold_unless_0(counts.not_copied),
        f"{counts.repeated:,}",
        _bold_unless_0(counts.reordered),
        _median_and_worst([recovery.first_s for recovery in outcome.recoveries]),
        _median_and_worst([recovery.all_s for recovery in outcome.recoveries]),
        str(outcome.restarts_by_hand),
        _gap(outcome),
    ]


def _bold_unless_0(count: int) -> str:
    return f"**{count:,}**" if count else "0"


def _median_and_worst(seconds: Sequence[float | None]) -> str:
    """Return the median, with the worst in brackets; "never" stands for a missing value."""
    came = [each for each in seconds if each is not None]
    if not seconds:
        return "-"
    missing = len(seconds) - len(came)
    worst = f"never {missing} of {len(seconds)}" if missing else f"{max(came):.1f}" if len(came) > 1 else ""
    if not came:
        return f"**{worst}**"
    return f"{statistics.median(came):.1f}" + (f" ({worst})" if worst else "")


def _gap(outcome: Outcome) -> str:
    if outcome.reported is None:
        return "-"
    said = {WARNED: "reported", MENTIONED: "INFO lines only", SILENT: "**silent**"}[outcome.reported.level]
    return f"{outcome.gap_records:,}: {said}"
