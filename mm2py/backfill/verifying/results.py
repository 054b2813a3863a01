"""The results of a verification: for each range and partition, and as table, certificate and JSON. Pure."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from mm2py.backfill.verifying import merkle
from mm2py.backfill.verifying.comparing import RangeComparison
from mm2py.backfill.verifying.finding import Difference, DifferenceKind, ShownRecord, side_by_side
from mm2py.backfill.verifying.latest import LatestRecords
from mm2py.backfill.verifying.places import SOURCE
from mm2py.backfill.verifying.planning import NotCompared, PartitionPlan
from mm2py.backfill.verifying.ranges import LEAF_OFFSETS, ComparedRange, Interval
from mm2py.text_table import text_table

FORMAT: Final = 1
"""The version of the JSON object. Within one version fields may be added; no field changes its meaning."""


class RangeResult(NamedTuple):
    """The result of a task for one range. It has digests, and no content of any record."""

    number: int
    source_start: int
    """Where the range began when it was read: a log may have deleted its beginning meanwhile."""
    target_start: int
    records: int
    """Source records."""
    passed_records: int
    """Source records that were compared as bytes of whole batches."""
    batch_bytes: int
    """Of the source's batches."""
    source_root: bytes
    target_root: bytes
    leaves: bytes
    """Only if the roots differ: the number of each leaf, 8 bytes each. ``source_leaves`` and ``target_leaves`` are then
    the digests of these leaves on both sides."""
    source_leaves: bytes
    target_leaves: bytes
    foreign_place: int
    """Of a compacted range: the place of the first target record that no run covers; -1 if there is none."""
    problem: str
    """Why the range was not compared; empty if it was."""

    @property
    def is_equal(self) -> bool:
        return not self.problem and self.source_root == self.target_root and self.foreign_place < 0

    def first_leaf(self) -> int | None:
        """Return the number of the first leaf that differs."""
        step = merkle.DIGEST_BYTES
        sides = [
            [some[at : at + step] for at in range(0, len(some), step)]
            for some in (self.source_leaves, self.target_leaves)
        ]
        at = merkle.first_difference(*sides)
        return None if at is None else array("q", self.leaves)[at]


def result_of(compared: ComparedRange, found: RangeComparison | LatestRecords | None) -> RangeResult:
    """Return the result of a range. ``found`` is None if both logs have deleted it."""
    if found is None:
        return failed(compared, "both logs have deleted it meanwhile")
    place, source_start, target_start = -1, found.range.source[0], found.range.target[0]
    if isinstance(found, LatestRecords):
        place = -1 if found.first_foreign is None else found.first_foreign
        nothing = merkle.root([])
        counted = (found.records[SOURCE], 0, found.bytes)
        return RangeResult(
            compared.number, source_start, target_start, *counted, nothing, nothing, b"", b"", b"", place, ""
        )
    sides = [leaf.source for leaf in found.leaves], [leaf.target for leaf in found.leaves]
    roots = merkle.root(sides[0]), merkle.root(sides[1])
    kept = (b"", b"", b"")
    if roots[0] != roots[1]:
        numbers = array("q", [leaf.number for leaf in found.leaves])
        kept = (numbers.tobytes(), b"".join(sides[0]), b"".join(sides[1]))
    counted = (
        found.passed_records + found.decoded_records,
        found.passed_records,
        found.passed_bytes + found.decoded_bytes,
    )
    return RangeResult(compared.number, source_start, target_start, *counted, *roots, *kept, place, "")


def failed(compared: ComparedRange, problem: str) -> RangeResult:
    """Return the result of a range that could not be compared."""
    nothing = merkle.root([])
    start = (compared.source[0], compared.target[0])
    return RangeResult(compared.number, *start, 0, 0, 0, nothing, nothing, b"", b"", b"", -1, problem)


@dataclass(slots=True)
class PartitionResult:
    """The result of one partition."""

    plan: PartitionPlan
    results: list[RangeResult]
    """Of ``plan.ranges``, in their order."""
    difference: Difference | None = None
    """The first one."""
    differing: int = 0
    """How many ranges differ; of a compacted partition, how many keys."""
    tail_records: int = 0
    """Copies that the ledger does not have yet."""

    def first_differing(self) -> ComparedRange | None:
        """Return the first leaf that differs, by binary search: among the ranges first, then among one's leaves."""
        pairs = [
            (one, result) for one, result in zip(self.plan.ranges, self.results, strict=True) if not result.problem
        ]
        at = merkle.first_difference([one.source_root for _, one in pairs], [one.target_root for _, one in pairs])
        if at is None:
            return None
        compared, result = pairs[at]
        leaf = result.first_leaf()
        now = compared.without_expired(result.source_start, result.target_start)
        if leaf is None or now is None:
            return None
        return now.cut(leaf * LEAF_OFFSETS, (leaf + 1) * LEAF_OFFSETS)

    @property
    def roots(self) -> tuple[bytes, bytes]:
        """The digests of all compared ranges: of the source side, and of the target side."""
        return merkle.root([one.source_root for one in self.results]), merkle.root(
            [one.target_root for one in self.results]
        )

    @property
    def problems(self) -> list[tuple[ComparedRange, str]]:
        return [
            (one, found.problem) for one, found in zip(self.plan.ranges, self.results, strict=True) if found.problem
        ]

    @property
    def has_problems(self) -> bool:
        """True if a part that should have been compared could not be."""
        return bool(self.problems) or self.plan.is_unknown

    @property
    def is_different(self) -> bool:
        return self.difference is not None or self.differing > 0

    @property
    def records(self) -> int:
        return sum(one.records for of, one in zip(self.plan.ranges, self.results, strict=True) if not of.is_later)


@dataclass(frozen=True)
class ResultStretch:
    """Ranges of one partition that follow each other and have the same result."""

    topic: str
    partition: int
    remote_topic: str
    source: Interval
    target: Interval
    records: int
    result: str
    """``equal``, ``different``, or why the stretch was not compared."""


def stretches(found: PartitionResult) -> list[ResultStretch]:
    """Return the compared stretches of a partition, without a compacted partition's part after the compared ranges."""
    merged: list[ResultStretch] = []
    facts = found.plan.facts
    for one, result in zip(found.plan.ranges, found.results, strict=True):
        if one.is_later:
            continue
        text = result.problem or ("equal" if result.is_equal else "different")
        if one.is_compacted and not result.problem:
            text = "different" if found.is_different else "equal"
        last = merged[-1] if merged else None
        source, target = (result.source_start, one.source[1]), (result.target_start, one.target[1])
        records = result.records
        if last is not None and last.result == text and last.source[1] == source[0] and last.target[1] == target[0]:
            source, target, records = (last.source[0], source[1]), (last.target[0], target[1]), last.records + records
            merged.pop()
        merged.append(ResultStretch(facts.topic, facts.partition, facts.remote_topic, source, target, records, text))
    return merged


@dataclass(frozen=True)
class Verification:
    """The result of one flow."""

    flow: tuple[str, str]
    """The aliases of source and target."""
    partitions: Sequence[PartitionResult]
    left_out: Sequence[NotCompared]
    """Partitions that could not be compared at all."""
    reasons: Sequence[str]
    at_ms: int
    """When it ended, in epoch milliseconds."""
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What was asked for: sample, seed, since."""

    @property
    def is_different(self) -> bool:
        return any(one.is_different for one in self.partitions)

    @property
    def has_problems(self) -> bool:
        """True if something that should have been compared could not be."""
        return bool(self.left_out) or any(one.has_problems for one in self.partitions)

    @property
    def not_compared(self) -> list[NotCompared]:
        return [*(note for one in self.partitions for note in one.plan.not_compared), *self.left_out]


def table(found: Verification) -> str:
    """Return a table with a line for each stretch, the differences, what was not compared, and the verdict."""
    head = ("TOPIC", "PARTITION", "SOURCE", "TARGET", "RECORDS", "RESULT")
    rows = [
        (one.topic, str(one.partition), _interval(one.source), _interval(one.target), f"{one.records:,}", one.result)
        for partition in found.partitions
        for one in stretches(partition)
    ]
    return "\n".join([*(text_table(head, rows) or ["  ".join(head)]), *_findings(found), _verdict(found), ""])


def _verdict(found: Verification) -> str:
    """Return in a line whether the copy is right."""
    partitions = len(found.partitions)
    records = sum(one.records for one in found.partitions)
    equal = f"{records:,} records of {partitions:,} partition{'' if partitions == 1 else 's'} are equal."
    if found.is_different:
        differing = [one.plan.facts for one in found.partitions if one.is_different]
        first = f"{found.flow[0]}/{differing[0].topic}/{differing[0].partition}"
        return f"DIFFERENT: {len(differing):,} of {partitions:,} partitions, the first is {first}."
    if found.has_problems:
        return f"NOT KNOWN: not all could be read, see above. {equal}"
    left_out = sum(one.count for one in found.not_compared)
    if not records:
        return "Nothing was compared." + (
            f" {left_out:,} offsets were left out, for the reasons above." if left_out else ""
        )
    more = f" {left_out:,} offsets were not compared, for the reasons above." if left_out else ""
    return f"No difference: {equal}{more}"


def certificate(found: Verification) -> str:
    """Return the certificate as text: what was equal at which time, and what was not compared."""
    source, target = found.flow
    at = datetime.fromtimestamp(found.at_ms / 1000, UTC)
    asked = ", ".join(f"{name} {value}" for name, value in found.settings.items())
    lines = [f"mm2py verify, {source}->{target}, {at:%Y-%m-%d %H:%M} UTC" + (f", {asked}" if asked else "")]
    for partition in found.partitions:
        for one in stretches(partition):
            sides = (
                f"{source}/{one.topic}/{one.partition} {_interval(one.source)}",
                (f"{target}/{one.remote_topic}/{one.partition} {_interval(one.target)}"),
            )
            relation = {"equal": "=", "different": "differs from"}.get(one.result, "not compared with")
            why = "" if one.result in {"equal", "different"} else f" ({one.result})"
            lines.append(f"{sides[0]} {relation} {sides[1]}, {at:%H:%M} UTC{why}")
    lines += _findings(found)
    passed = sum(result.passed_records for one in found.partitions for result in one.results)
    records = sum(one.records for one in found.partitions)
    ways = f"{passed:,} as bytes of whole batches (CRC-32C), {records - passed:,} one by one"
    lines.append(f"{records:,} records compared: {ways}.")
    for partition in found.partitions:
        facts = partition.plan.facts
        if partition.results and not facts.is_compacted:
            lines.append(f"digest of {source}/{facts.topic}/{facts.partition}: {partition.roots[0].hex()}")
    return "\n".join([*lines, ""])


def body(found: Verification, exit_code: int) -> dict[str, Any]:
    """Return the result as an object for programs."""
    return {
        "format": FORMAT,
        "exit_code": exit_code,
        "flow": "->".join(found.flow),
        "at_ms": found.at_ms,
        "seconds": round(found.seconds, 3),
        **found.settings,
        "partitions": [
            {
                "topic": one.plan.facts.topic,
                "partition": one.plan.facts.partition,
                "remote_topic": one.plan.facts.remote_topic,
                "result": "different" if one.is_different else "not compared" if one.has_problems else "equal",
                "records": one.records,
                "differing": one.differing,
                "stretches": [
                    {"source": one.source, "target": one.target, "records": one.records, "result": one.result}
                    for one in stretches(one)
                ],
                "difference": None if one.difference is None else _difference(one.difference),
                "behind_ledger": one.tail_records,
            }
            for one in found.partitions
        ],
        "not_compared": [
            {
                "why": str(one.why),
                "topic": one.topic,
                "partition": one.partition,
                "start": one.start,
                "end": one.end,
                "offsets": one.count,
                "is_target": one.is_target,
            }
            for one in found.not_compared
        ],
    }


def rows(found: Verification) -> list[dict[str, Any]]:
    """Return the result of each range, for Parquet. Digests are hex."""
    return [
        {
            "at": datetime.fromtimestamp(found.at_ms / 1000, UTC),
            "flow": "->".join(found.flow),
            "topic": one.topic,
            "partition": one.partition,
            "remote_topic": one.remote_topic,
            "source_start": result.source_start,
            "source_end": one.source[1],
            "target_start": result.target_start,
            "target_end": one.target[1],
            "records": result.records,
            "passed_records": result.passed_records,
            "bytes": result.batch_bytes,
            "source_digest": result.source_root.hex(),
            "target_digest": result.target_root.hex(),
            "is_equal": not partition.is_different if one.is_compacted else result.is_equal,
            "problem": result.problem,
        }
        for partition in found.partitions
        for one, result in zip(partition.plan.ranges, partition.results, strict=True)
        if not one.is_later
    ]


def _difference(one: Difference) -> dict[str, Any]:
    return {
        "kind": one.kind.name.lower(),
        "what": one.what,
        "source_offset": one.source_offset,
        "target_offset": one.target_offset,
        "source": _record(one.source),
        "target": _record(one.target),
    }


def _record(one: ShownRecord | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "offset": one.offset,
        "timestamp_ms": one.timestamp_ms,
        "key": _base64(one.key),
        "value": _base64(one.value),
        "headers": [[name, _base64(data)] for name, data in one.headers],
    }


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _findings(found: Verification) -> list[str]:
    """Return the lines that say what differs and what was not compared."""
    source, target = found.flow
    lines = []
    for one in found.partitions:
        if one.is_different:
            facts = one.plan.facts
            many = f"{one.differing:,} {'keys' if facts.is_compacted else 'ranges'} differ"
            where = f"{source}/{facts.topic}/{facts.partition}"
            if one.difference is None:
                lines.append(f"{where}: {many}, and the records are gone since.")
                continue
            first = one.difference
            offsets = f"at source offset {first.source_offset}, target offset {first.target_offset}"
            who = ": another client wrote it, or it was copied twice" if first.kind is DifferenceKind.FOREIGN else ""
            lines.append(f"{where}: {first.what}, {offsets}{who}" + (f" ({many})" if one.differing > 1 else ""))
            lines.append(side_by_side(first, found.flow))
    groups: dict[tuple[str, int, str, bool], list[NotCompared]] = {}
    for note in found.not_compared:
        groups.setdefault((note.topic, note.partition, str(note.why), note.is_target), []).append(note)
    for (topic, partition, why, is_target), notes in groups.items():
        span = _interval((notes[0].start, notes[-1].end)) + (f" in {len(notes)} parts" if len(notes) > 1 else "")
        side = f"{target}: copies of {topic}/{partition}" if is_target else f"{source}/{topic}/{partition}"
        lines.append(f"not compared: {side} {span}, {sum(one.count for one in notes):,} offset(s): {why}")
    lines += [
        f"not compared: {source}/{one.topic}/{one.partition} {_interval(one.source)}: {why}"
        for partition in found.partitions
        for one, why in partition.problems
    ]
    lines += [f"not compared: {reason}" for reason in found.reasons]
    unknown = [one.plan.facts for one in found.partitions if one.plan.has_no_ledger]
    if unknown:
        which = f"{source}/{unknown[0].topic}/{unknown[0].partition}"
        lines.append(
            f"{len(unknown)} partition(s) have no ledger, the first is {which}: nothing tells which records are copies."
            f" Run mm2py rebuild-ledger FILE '{source}->{target}', then verify again."
        )
    lines += [
        f"{one.plan.facts.topic}/{one.plan.facts.partition}: {one.tail_records:,} copies behind the ledger are in order"
        for one in found.partitions
        if one.tail_records
    ]
    return lines


def _interval(interval: Interval) -> str:
    return f"[{interval[0]}, {interval[1]})"
