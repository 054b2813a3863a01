"""What ``mm2py dr fence`` and ``mm2py dr unfence`` print, for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from mm2py.dr.fence.plan import FencePlan, in_short
from mm2py.dr.fence.record import FenceRecord, FenceWay
from mm2py.dr.fence.stillness import Stillness
from mm2py.moments import time_text
from mm2py.topics.topic_configs import FENCE_MESSAGE_BYTES

FORMAT: Final = 1
"""The version of the object for programs. Within one version fields may be added; none changes its meaning."""
LINES_MOST: Final = 20


def plan_lines(plan: FencePlan, flow: str, standing: FenceRecord | None) -> list[str]:
    """Return what a fence would do, and what it cannot prove."""
    wanted = plan.wanted
    lines = [f"{flow}: a fence of {len(wanted.topics)} topic(s) on {wanted.cluster}, by {wanted.way}:"]
    lines += [f"  {in_short(wanted.topics)}"]
    if standing is not None and standing.is_up:
        lines.append(f"it is {standing.state} already, since {time_text(standing.at_ms)}, by {standing.who_and_why}")
    if plan.bindings:
        lines.append(f"adds {len(plan.added)} ACL(s), {len(plan.there)} are there already:")
        lines += _cut([f"  {one}" for one in plan.added])
    if plan.sizes is not None:
        lines.append(f"sets max.message.bytes={FENCE_MESSAGE_BYTES} on them; before:")
        lines += _cut([f"  {topic}: {size or '(the default)'}" for topic, size in sorted(plan.sizes.items())])
    lines += [f"refused: {one}" for one in plan.refused]
    lines += [f"cannot be proven: {one}" for one in plan.unproven]
    lines += [f"note: {one}" for one in plan.notes]
    return lines


def stillness_lines(found: Stillness) -> list[str]:
    """Return whether a fence is verified, and why it is not."""
    if found.is_proven:
        return [f"verified: no partition of {len(found.last.ends)} has taken a record for {found.still_s:.0f} s."]
    return ["NOT verified:", *_cut([f"  {one}" for one in found.reasons()])]


def record_lines(record: FenceRecord, left: Sequence[str] = ()) -> list[str]:
    """Return what a fence is by its record, and what was left alone when it was lifted."""
    what = {
        FenceWay.ACLS: f"{len(record.bindings)} ACL(s) of it",
        FenceWay.SIZE: f"max.message.bytes of {len(record.sizes)} topic(s)",
        FenceWay.HOOK: f"the hook {record.hook}",
    }[record.way]
    lines = [f"{record.flow}: the fence is {record.state}: {what}; {in_short(record.topics)}."]
    if left:
        lines.append(f"left alone, for somebody has changed or deleted it since: {in_short(left)}")
    return lines


def body_of(
    exit_code: int,
    flow: str,
    *,
    plan: FencePlan | None = None,
    record: FenceRecord | None = None,
    stillness: Stillness | None = None,
    ended: Iterable[str] = (),
    left: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the same as one JSON object."""
    body: dict[str, Any] = {"format": FORMAT, "exit_code": exit_code, "flow": flow}
    if plan is not None:
        body["plan"] = {
            "way": plan.wanted.way,
            "topics": plan.wanted.topics,
            "adds": [{"kind": one.kind, "name": one.name, "principal": one.principal} for one in plan.added],
            "there": len(plan.there),
            "sizes": plan.sizes,
            "refused": [{"what": one.what, "remedy": one.remedy} for one in plan.refused],
            "unproven": [{"what": one.what, "remedy": one.remedy} for one in plan.unproven],
            "notes": plan.notes,
        }
    if record is not None:
        body["fence"] = {
            "state": record.state,
            "way": record.way,
            "topics": record.topics,
            "acls": len(record.bindings),
            "at_ms": record.at_ms,
            "by": record.by,
            "reason": record.author.reason,
            "left": left,
        }
    if stillness is not None:
        body["verified"] = stillness.is_proven
        body["why_not"] = stillness.reasons()
        body["still_s"] = round(stillness.still_s, 1)
        body["ends"] = {f"{topic}-{number}": end for (topic, number), end in sorted(stillness.last.ends.items())}
        body["ended_transactions"] = list(ended)
    return body


def _cut(lines: list[str]) -> list[str]:
    return lines if len(lines) <= LINES_MOST else [*lines[:LINES_MOST], f"  and {len(lines) - LINES_MOST} more"]
