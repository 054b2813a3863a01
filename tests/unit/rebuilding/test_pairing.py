"""Both logs of a partition compared: the pairs are those of the copying, and any difference is named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.planning.steps import Dropped, Outgoing, Step
from mm2py.flow import TopicName
from mm2py.offsets.own_ledger import LedgerOf
from mm2py.offsets.rebuilt_ledger import RebuiltLedger
from mm2py.offsets.runs import Run
from mm2py.rebuilding.pairing import ComparedLog, NotRebuildable, Pairing
from mm2py.records.batch import NewRecord, build_batch
from mm2py.records.ledger_record import decode

Part = Sequence[str] | int
"""Values of the records of a batch, or so many markers."""


def steps(*parts: Part, ms: int = 1, reason: str | None = None) -> list[Step]:
    """Return what ``plan`` makes of a log."""
    found: list[Step] = []
    offset = 0
    for part in parts:
        if isinstance(part, int):
            offset += part
            found.append(Dropped(offset, part, "control"))
            continue
        data = build_batch([NewRecord(None, one.encode(), ms) for one in part])
        found.append(Outgoing(offset, offset + len(part), len(part), ms, 0, data, reason))  # type: ignore[arg-type]
        offset += len(part)
    return found


def pairs(
    source: Sequence[Step], target: Sequence[Step], ends: tuple[int, int | None], *, runs_most: int = 100
) -> list[Run]:
    """Compare, one step at a time."""
    left = {"orders-0 on A": [*source], "A.orders-0 on B": [*target]}
    logs = [ComparedLog(name, end) for name, end in zip(left, ends, strict=True)]
    pairing = Pairing(*logs, RebuiltLedger(LedgerOf(TopicName("orders"), 0), 1), runs_most=runs_most)
    while (wanted := pairing.wanted()) is not None:
        assert left[wanted.name], f"nothing is left of {wanted.name}"
        wanted.take([left[wanted.name].pop(0)])
    assert pairing.is_over
    found: list[Run] = []
    for record in pairing.ledger.finish(ends[0]):
        chunk = decode(record.key, record.value)
        assert chunk is not None
        found += [one for one in chunk.entries if isinstance(one, Run)]
    return found


@given(st.data())
def test_each_record_is_paired_with_its_copy_however_both_logs_are_cut(data: st.DataObject) -> None:
    values = [f"{number % 3}" for number in range(data.draw(st.integers(0, 12)))]
    logs: list[list[Step]] = []
    offsets: list[list[int]] = []
    ends: list[int] = []
    for _ in range(2):
        parts: list[Part] = []
        left, at, places = list(values), 0, []
        while left:
            if data.draw(st.booleans()):
                parts.append(1)
                at += 1
            size = data.draw(st.integers(1, len(left)))
            parts.append(left[:size])
            places += range(at, at + size)
            at, left = at + size, left[size:]
        parts.append(1)
        ends.append(at + data.draw(st.integers(0, 1)))
        logs.append(steps(*parts, ["behind", "the end"]))
        offsets.append(places)
    found = pairs(logs[0], logs[1], (ends[0], ends[1]))
    flat = [(run.source_offset + at, run.target_offset + at) for run in found for at in range(run.record_count)]
    assert flat == list(zip(*offsets, strict=True))
    assert pairs(logs[0], logs[1], (ends[0], None)) == found, "where the end on the target is not known"


@pytest.mark.parametrize(
    ("target", "ends", "why"),
    [
        (
            steps(["a", "x", "c"]),
            (3, 3),
            "offset 1 of orders-0 on A and the one at offset 1 of A.orders-0 .*values",
        ),
        (steps(["a", "b", "c"], ms=2), (3, 3), "offset 0 of orders-0 on A .*timestamps"),
        (steps(["a", "b", "c", "x"]), (3, 4), "offset 3 of A.orders-0 on B is none that was copied before offset 3"),
        (steps(["a", "b", "c", "x"]), (3, 2), "offset 2 of orders-0 on A has no copy before offset 2"),
        (steps(["a", "a", "b", "c"]), (3, 4), "copied twice"),
        (steps(1, ["b", "c"])[1:], (3, 3), "offset 0 of A.orders-0 on B holds no record"),
        (steps(["a", "b"], 1, ["c"])[::2], (3, 4), "offset 2 of A.orders-0 on B holds no record"),
        ([*steps(["a", "b"]), Dropped(3, 0, "empty")], (3, 3), "offset 2 of A.orders-0 on B holds no record"),
    ],
)
def test_what_keeps_a_ledger_from_being_exact_is_named_with_its_offsets(
    target: list[Step], ends: tuple[int, int], why: str
) -> None:
    with pytest.raises(NotRebuildable, match=why):
        pairs(steps(["a", "b", "c"]), target, ends)


def test_timestamps_that_the_target_sets_are_not_compared() -> None:
    assert pairs(steps(["a"]), steps(["a"], ms=99, reason="log append time"), (1, 1)) == [Run(0, 0, 1)]


def test_a_ledger_that_would_be_too_large_is_none() -> None:
    many: list[Part] = [part for number in range(9) for part in ([f"{number}"], 1)]
    with pytest.raises(NotRebuildable, match="more than 5 lines"):
        pairs(steps(*many), steps(*many[:2], [f"{number}" for number in range(1, 9)]), (18, 10), runs_most=5)


def test_offsets_of_a_rebuilt_batch_count_and_not_those_within_it() -> None:
    (whole,) = steps(["a", "b", "c"])
    assert isinstance(whole, Outgoing)
    holey = [Dropped(1, 1, "control"), whole._replace(first_offset=1, next_offset=5, jumps=(2, 4))]
    with pytest.raises(NotRebuildable, match="offset 3 of orders-0 on A holds no record"):
        pairs(holey, [whole], (5, 3))
