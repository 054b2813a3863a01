"""Lifts a fence: gives back what its record says, and nothing else.

It works wherever the process that raised the fence has ended, and may itself be begun again after any step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mm2py.dr.fence.fence_log import FenceStore
from mm2py.dr.fence.fenced_cluster import FencedCluster
from mm2py.dr.fence.raising import FenceRefused, FenceWrite, Hook
from mm2py.dr.fence.record import FenceRecord, FenceState, FenceWay
from mm2py.topics.topic_configs import FENCE_MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class FenceLifted:
    """What was given back."""

    record: FenceRecord
    left: tuple[str, ...] = ()
    """Topics whose max.message.bytes is no longer that of the fence, or that are gone: they were left alone."""


async def lift_fence(
    store: FenceStore, cluster: FencedCluster, write: FenceWrite, *, hook: Hook | None = None
) -> FenceLifted | None:
    """Give back what a fence has added, and return its last record; None: there is no fence.

    Args:
        hook: for a fence by a hook.
    Raises:
        FenceRefused: it was raised by a hook, and ``hook`` is missing. Nothing was changed.
        FenceChangedMeanwhile, FenceIncomplete, HookFailed, KafkaError: begin again; what was given back stays so.
    Cancelling leaves any part of it done; the record knows all of it.
    """
    before = await store.read()
    if before is None or not before.is_up:
        if before is not None:
            await store.heal(before)
        return None
    if before.way is FenceWay.HOOK and hook is None:
        raise FenceRefused(
            f"The fence was raised by a hook, {before.hook}, of {before.who_and_why}.",
            remedy="Name the command again, --hook-fence CMD: mm2py runs none that a topic names.",
        )
    record = replace(
        before,
        state=FenceState.LIFTING,
        mark=write.mark,
        at_ms=write.at_ms,
        by=write.by,
        author=write.author,
    )
    record = await store.write(record, after=before)
    if record.way is FenceWay.HOOK and hook is not None:
        await hook("unfence", record)
    await cluster.remove(record.bindings)
    back, left = to_give_back(record, await cluster.sizes(list(record.sizes)))
    await cluster.set_sizes(back)
    record = await store.write(replace(record, state=FenceState.LIFTED), after=record)
    return FenceLifted(record, left)


def to_give_back(record: FenceRecord, now: Mapping[str, str | None]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return the limits to set, and the topics that are left alone. Pure.

    Args:
        now: each topic's own value of max.message.bytes. One that is not the fence's was set by somebody else since.
    """
    back = {topic: size for topic, size in record.sizes.items() if now.get(topic) == str(FENCE_MESSAGE_BYTES)}
    left = tuple(topic for topic, size in record.sizes.items() if topic not in back and now.get(topic) != size)
    return back, left
