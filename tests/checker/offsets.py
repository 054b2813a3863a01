"""Judges a mirror's checkpoints, offset syncs, groups and ledger by the pairs of both logs.

* I6: no checkpoint skips a record, none is after the end of the remote partition, and none goes back unless its
  group did. If wanted, the last one of each group is exact: nothing is skipped and nothing read again.
* I7: each offset sync names a source record and its copy.
* I12: every group has the same position on the target as on the source.
* L: for every offset of both logs, the ledger answers with the offset of the same record in the other log, or with an
  offset from which a reader finds the same records.

All costs are counted in copied records. The functions add to a verdict; they have no I/O, and do not depend on how a
ledger is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tests.checker.pairs import EXACT, Pairs
from tests.checker.verdict import Verdict


class Checkpointed(NamedTuple):
    """A checkpoint."""

    group: str
    source_offset: int
    target_offset: int


class Answered(NamedTuple):
    """A ledger's answer for one offset."""

    offset: int | None
    """Where to continue in the other log; None: the ledger does not know."""
    is_exact: bool
    is_copied: bool
    """The ledger answers that the offset has a record, and ``offset`` its copy."""


def judge_checkpoints(
    checkpoints: Sequence[Checkpointed],
    pairs: Pairs,
    verdict: Verdict,
    *,
    exact: bool = True,
    may_repeat: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Judge the checkpoints of one partition (I6).

    Args:
        checkpoints: in the order in which they were written.
        pairs: the source as ``here``.
        exact: the last checkpoint of each group must be exact. Earlier ones may be from a time when less was copied.
        may_repeat: how many records a group may still read again; other groups none.
    """
    last: dict[str, Checkpointed] = {}
    for one in checkpoints:
        cost, before = pairs.cost(one.source_offset, one.target_offset), last.get(one.group)
        if cost.skipped:
            _add(verdict, "I6", f"the checkpoint of {one.group} skips {cost.skipped} records", one[1:])
        if not 0 <= one.target_offset <= pairs.there.end:
            _add(verdict, "I6", f"the checkpoint of {one.group} is outside the log, up to {pairs.there.end}", one[1:])
        if before is not None and one.source_offset >= before.source_offset and one.target_offset < before[2]:
            _add(verdict, "I6", f"the checkpoint of {one.group} goes back from {before[2]}, its group did not", one[1:])
        last[one.group] = one
    for one in last.values() if exact else ():
        again = pairs.cost(one.source_offset, one.target_offset).read_again
        if again > may_repeat.get(one.group, 0):
            _add(verdict, "I6", f"from its checkpoint {one.group} reads {again} records again", one[1:])


def judge_syncs(syncs: Sequence[tuple[int, int]], pairs: Pairs, verdict: Verdict) -> None:
    """Judge the offset syncs of one partition (I7), given as source and target offset; the source is ``here``."""
    for sync in syncs:
        if (why := pairs.why_no_pair(*sync)) is not None:
            _add(verdict, "I7", f"the sync names no record and its copy: {why}", sync)


def judge_groups(
    source: Mapping[str, int],
    target: Mapping[str, int],
    pairs: Pairs,
    verdict: Verdict,
    *,
    may_repeat: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Judge the positions of groups in one partition (I12).

    Args:
        source: the committed offset of each group in scope; as ``target``, which may also have other groups.
        pairs: the source as ``here``.
        may_repeat: as ``judge_checkpoints``.
    """
    for group, source_offset in source.items():
        found = target.get(group)
        if found is None:
            _add(verdict, "I12", f"{group} has committed nothing on the target", (source_offset, None))
            continue
        cost = pairs.cost(source_offset, found)
        if cost.skipped:
            _add(verdict, "I12", f"{group} skips {cost.skipped} records on the target", (source_offset, found))
        if cost.read_again > may_repeat.get(group, 0):
            _add(verdict, "I12", f"{group} reads {cost.read_again} records again on the target", (source_offset, found))
        if found > pairs.there.end:
            _add(verdict, "I12", f"{group} stands behind the end on the target, {pairs.there.end}", (None, found))


def judge_ledger(
    forward: Mapping[int, Answered],
    backward: Mapping[int, Answered],
    pairs: Pairs,
    verdict: Verdict,
    *,
    exact: bool = True,
) -> None:
    """Judge a ledger's answers for every offset of both logs, including their ends (L).

    It must answer all of them, except for target offsets after the last copy and at least one other record. There an
    answer need not be exact: copies that the ledger does not know yet may be there.

    Args:
        forward: the answers by source offset, as ``backward`` by target offset.
        pairs: the source as ``here``.
        exact: every answer must be exact. Else a reader may read records again, if the answer says it is not exact.
    """
    for answers, ours, way in ((forward, pairs, 1), (backward, pairs.flipped, -1)):
        partners = dict(zip(ours.here.copied, ours.there.copied, strict=True))
        for offset in range(ours.here.start, ours.here.end + 1):
            answer = answers.get(offset)
            if answer is not None and offset in partners and answer == (partners[offset], True, True):
                continue  # nearly all answers are; the checks below are slow
            is_behind = way < 0 and offset > (ours.here.copied[-1] if ours.here.copied else -1) + 1
            if answer is None or answer.offset is None:
                if not is_behind:
                    _add(verdict, "L", "no answer", (offset, None)[::way])
                continue
            for what in _faults(offset, answer.offset, answer, ours, exact=exact and not is_behind):
                _add(verdict, "L", what, (offset, answer.offset)[::way])


def _faults(offset: int, found: int, answer: Answered, pairs: Pairs, *, exact: bool) -> list[str]:
    faults = []
    cost, partner = pairs.cost(offset, found), pairs.partner(offset)
    if found > pairs.there.end:
        faults.append(f"behind the end of the other log, {pairs.there.end}")
    if cost.skipped:
        faults.append(f"skips {cost.skipped} records")
    if cost != EXACT and answer.is_exact:
        faults.append("is said to be exact")
    if cost.read_again and exact:
        faults.append(f"reads {cost.read_again} records again")
    if answer.is_copied:
        if (why := pairs.why_no_pair(offset, found)) is not None:
            faults.append(f"is said to be the same record: {why}")
    elif partner is not None and exact:
        faults.append(f"is not said to be a record, and its copy stands at {partner}")
    elif not answer.is_exact and exact:
        faults.append("is not said to be exact")
    return faults


def _add(verdict: Verdict, invariant: str, what: str, offsets: Sequence[int | None]) -> None:
    verdict.add(invariant, what, source_offset=offsets[0], target_offset=offsets[1])
