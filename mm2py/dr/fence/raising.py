"""Raises a fence: stores what it adds and what was there before, and only then adds it.

Each step may be the last one that a process takes. Whoever begins again reads the record and goes on; ``lifting``
takes back, wherever it stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from mm2py.dr.fence.fence_log import FenceStore
from mm2py.dr.fence.fenced_cluster import FencedCluster
from mm2py.dr.fence.plan import FencePlan
from mm2py.dr.fence.record import BINDINGS_MOST, FenceRecord, FenceState, FenceWay
from mm2py.errors import Mm2Error
from mm2py.records.author import Author
from mm2py.topics.topic_configs import FENCE_MESSAGE_BYTES

Hook = Callable[[str, FenceRecord], Awaitable[None]]
"""Runs the operator's command: gets ``fence`` or ``unfence``, and the record."""


class FenceRefused(Mm2Error):
    """A fence must not be raised, or not be lifted. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class FenceWrite:
    """Who changes a fence, and when; and a mark for the records of this process."""

    author: Author
    command: str
    at_ms: int
    mark: str

    @property
    def by(self) -> str:
        """Who asks, in words."""
        return self.author.by_command(self.command)


async def raise_fence(
    plan: FencePlan,
    flow: str,
    store: FenceStore,
    cluster: FencedCluster,
    write: FenceWrite,
    *,
    hook: Hook | None = None,
    hook_name: str = "",
) -> FenceRecord:
    """Raise a fence, or go on with one that was begun, and return its record. It is not verified yet.

    Args:
        plan: made of what the cluster says now. Nothing of it may be ``refused``.
        hook: for a fence by a hook.
    Raises:
        FenceRefused: a fence of another kind stands, or one is being lifted; or the target is away.
        FenceChangedMeanwhile, FenceIncomplete, HookFailed, KafkaError: ``lift_fence`` takes back what was done.
    Cancelling leaves any part of it done; the record knows all of it.
    """
    if store.target is None:
        raise FenceRefused("The target does not answer.", remedy="A fence is stored on both clusters before it is set.")
    if plan.refused:
        raise FenceRefused(plan.refused[0].what, remedy=plan.refused[0].remedy)
    before = await store.read()
    record = _record(plan, flow, before, write, hook_name)
    record = await store.write(record, after=before)
    if plan.wanted.way is FenceWay.HOOK:
        assert hook is not None  # noqa: S101  (a plan by a hook has one)
        await hook("fence", record)
    await cluster.add([one for one in record.bindings if one not in plan.there])
    await cluster.set_sizes(dict.fromkeys(record.sizes, str(FENCE_MESSAGE_BYTES)))
    return await store.write(replace(record, state=FenceState.STANDING), after=record)


def _record(plan: FencePlan, flow: str, before: FenceRecord | None, write: FenceWrite, hook_name: str) -> FenceRecord:
    """Return the record of a fence: what this plan adds, and what an earlier one has added and not given back."""
    up = before if before is not None and before.is_up else None
    if up is not None and up.state is FenceState.LIFTING:
        raise FenceRefused(
            f"{up.who_and_why} is lifting the fence.", remedy=f"Finish that first: mm2py dr unfence FILE '{flow}'."
        )
    if up is not None and up.way is not plan.wanted.way:
        raise FenceRefused(
            f"A fence by {up.way} stands, of {up.who_and_why}.",
            remedy=f"Lift it first: mm2py dr unfence FILE '{flow}'.",
        )
    own = set() if up is None else set(up.bindings)
    bindings = tuple(sorted(own | set(plan.added)))
    if len(bindings) > BINDINGS_MOST:
        raise FenceRefused(f"The fence would have {len(bindings):,} ACLs.", remedy="Name fewer topics: --topics.")
    earlier = {} if up is None else dict(up.sizes)
    return FenceRecord(
        flow=flow,
        serial=0,
        mark=write.mark,
        state=FenceState.RAISING,
        way=plan.wanted.way,
        topics=tuple(sorted({*plan.wanted.topics, *(() if up is None else up.topics)})),
        bindings=bindings,
        sizes={**(plan.sizes or {}), **earlier},
        hook=hook_name,
        at_ms=write.at_ms,
        by=write.by,
        author=write.author,
    )
