"""What the transforms of a flow make of sampled records, before and after, side by side. Pure.

Each record is transformed twice. A difference shows that a chain is not deterministic; no difference proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.records.batch import Record
from mm2py.transforms.chain import RunsFunctions, TopicChain, TransformFailed

SHOWN_MAX: Final = 60
"""How many characters of a key, value or header are shown."""


@dataclass(frozen=True, slots=True)
class PreviewedRecord:
    """One record, and what came out."""

    partition: int
    before: Record
    after: Record | None = None
    """None: it is left out, or it failed."""
    failure: str = ""
    """Why it does not come out; empty: it does, or it is left out."""
    again: str = ""
    """How a second run differs from the first; empty: it does not."""


def preview(
    chain: TopicChain,
    records: Sequence[tuple[int, Record]],
    *,
    remote_topic: str,
    first: RunsFunctions | None = None,
    second: RunsFunctions | None = None,
) -> list[PreviewedRecord]:
    """Transform records with their partitions twice, each by itself, so that one that fails stops no other.

    Args:
        first, second: call the functions of users for the first and the second run: in processes of their own, so that
            what a module remembers from record to record shows.
    """
    once = [_apply(chain, remote_topic, partition, record, first) for partition, record in records]
    twice = [_apply(chain, remote_topic, partition, record, second) for partition, record in reversed(records)]
    found = []
    for (partition, record), one, other in zip(records, once, reversed(twice), strict=True):
        again = ""
        if one != other:
            again = _said(other)
        after, failure = one
        found.append(PreviewedRecord(partition, record, after, failure, again))
    return found


def _apply(
    chain: TopicChain, topic: str, partition: int, record: Record, functions: RunsFunctions | None
) -> tuple[Record | None, str]:
    try:
        (after,) = chain.apply([record], topic=topic, partition=partition, functions=functions)
    except TransformFailed as error:
        return None, error.what
    return (after if after is None else after._replace(headers=tuple(map(tuple, after.headers)))), ""  # type: ignore[arg-type]


def _said(result: tuple[Record | None, str]) -> str:
    after, failure = result
    if failure:
        return failure
    return "it is left out" if after is None else "; ".join(_fields(after).values())


def lines_of(found: Sequence[PreviewedRecord]) -> list[str]:
    """Return the preview as text: what stays the same of a record is shown once."""
    lines: list[str] = []
    for one in found:
        lines.append(f"partition {one.partition}, offset {one.before.offset}")
        before = _fields(one.before)
        if one.failure:
            lines += [f"  {text}" for text in before.values()] + [f"  FAILS: {one.failure}"]
        elif one.after is None:
            lines += [f"  {text}" for text in before.values()] + ["  LEFT OUT"]
        else:
            after = _fields(one.after)
            for name, text in before.items():
                lines.append(f"  {text}" if after[name] == text else f"  {text}  ->  {after[name]}")
        if one.again:
            lines.append(f"  NOT DETERMINISTIC: a second run gives: {one.again}")
    return lines


def summary_of(found: Sequence[PreviewedRecord]) -> str:
    """Return the numbers in one line."""
    left_out = sum(one.after is None and not one.failure for one in found)
    failed = sum(bool(one.failure) for one in found)
    differ = sum(bool(one.again) for one in found)
    changed = sum(one.after is not None and _fields(one.after) != _fields(one.before) for one in found)
    same = len(found) - changed - left_out - failed
    text = f"{len(found)} record(s): {changed} changed, {same} unchanged, {left_out} left out, {failed} failed."
    if differ:
        return f"{text} {differ} came out differently in a second run: after a crash records are lost or repeated."
    return f"{text} A second run gave the same, which proves nothing: the chain must be deterministic."


def _fields(record: Record) -> dict[str, str]:
    headers = ", ".join(f"{name}={_text(value)}" for name, value in record.headers)
    return {
        "timestamp": f"timestamp {record.timestamp_ms}",
        "key": f"key {_text(record.key)}",
        "value": f"value {_text(record.value)}",
        "headers": f"headers [{headers}]",
    }


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}...")
