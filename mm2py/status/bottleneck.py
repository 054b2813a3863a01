"""What limits a flow that is behind, in one sentence with numbers, and what would help. Pure.

It follows from what each worker of the flow measures (``mm2py/copying/waits.py``) and tells with its heartbeats. A flow
that keeps up is limited by nothing. Where a worker has told nothing, that is not known.

MirrorMaker 2 gives no such answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.copying.link_tuning import Limit
from mm2py.flow import Flow
from mm2py.records.flow_waits import FlowWaits, Wait
from mm2py.records.link_use import LinkUse

BITES: Final = 10
"""A limit that brokers or operators set keeps the rate down even if it delays only so many percent of the time."""
BUSY: Final = 85
"""If a worker uses, or waits for, so many percent of a core, then that core is what limits it. What else it measures
is of no use then: answers wait until it looks at them."""


class Bottleneck(StrEnum):
    """What limits a flow."""

    SOURCE_READ = "source-read"
    """Brokers of the source take long to answer."""
    LINK = "link"
    """The way to a cluster that is far away."""
    PLANNING = "planning"
    """One core of the worker is busy."""
    TARGET_WRITE = "target-write"
    """Brokers of the target take long to acknowledge."""
    QUOTA = "quota"
    """A quota of brokers."""
    MEMORY = "memory"
    """``memory.max.bytes``."""
    RATE_LIMIT = "rate-limit"
    """``bytes.per.second.max``."""
    NOTHING_WAITS = "nothing-waits"
    """It keeps up."""
    UNKNOWN = "unknown"


_OF_WAIT: Final = {
    Wait.SOURCE: Bottleneck.SOURCE_READ,
    Wait.SOURCE_LINK: Bottleneck.LINK,
    Wait.PLANNING: Bottleneck.PLANNING,
    Wait.TARGET: Bottleneck.TARGET_WRITE,
    Wait.TARGET_LINK: Bottleneck.LINK,
    Wait.MEMORY: Bottleneck.MEMORY,
    Wait.RATE: Bottleneck.RATE_LIMIT,
}


@dataclass(frozen=True, slots=True)
class FlowBottleneck:
    """What limits a flow, and what would help."""

    cause: Bottleneck
    """In a word."""
    text: str
    """In a sentence, with the numbers."""
    remedy: str
    """What would help; empty: nothing is needed, or it is not known."""
    worker: str
    """The worker that the numbers are of; empty: none."""
    percent: int | None
    """How much of the time the cause delays this worker, or how much of a core it needs. None: no number is known."""
    bytes_per_s: int | None
    """How fast this worker copies the flow. None: not known."""


@dataclass(frozen=True, slots=True)
class LimitedWorker:
    """What is known of one worker that copies a flow."""

    name: str
    waits: FlowWaits | None
    """None: it has told nothing."""
    link: LinkUse | None = None
    core: str = ""
    """See ``Joined.core``."""


def cause_of(waits: FlowWaits | None) -> Bottleneck:
    """Return what limits one worker."""
    if waits is None:
        return Bottleneck.UNKNOWN
    if not waits.behind:
        return Bottleneck.NOTHING_WAITS
    if max(waits.source_throttled, waits.target_throttled) >= BITES:
        return Bottleneck.QUOTA
    if waits.waits.get(Wait.RATE, 0) >= BITES:
        return Bottleneck.RATE_LIMIT
    if waits.cpu + waits.cpu_waited >= BUSY:
        return Bottleneck.PLANNING
    word = _most(waits)
    return _OF_WAIT[Wait(word)] if word in set(Wait) else Bottleneck.UNKNOWN


def bottleneck_of(
    flow: Flow,
    workers: Sequence[LimitedWorker],
    *,
    why_unknown: str = "",
    unseen: str = "",
    tasks_max: int | None = None,
) -> FlowBottleneck:
    """Return what limits a flow: what limits most of its partitions that are behind.

    Args:
        workers: those that own partitions of it.
        why_unknown: why workers cannot tell it; empty: they can.
        unseen: what waits although no worker sees it wait; empty: nothing.
    """
    if why_unknown:
        return _unknown(why_unknown)
    behind: Counter[Bottleneck] = Counter()
    for one in workers:
        if one.waits is not None and one.waits.behind:
            behind[cause_of(one.waits)] += one.waits.behind
    if not behind:
        silent = [one.name for one in workers if one.waits is None]
        if silent:
            return _unknown(f"{silent[0]} has not told what it waits for: it has just started, or is an older version")
        if unseen:
            return _unknown(unseen)
        return FlowBottleneck(Bottleneck.NOTHING_WAITS, "nothing waits", "", "", None, None)
    (cause, _), *_ = behind.most_common(1)
    limited = [one for one in workers if cause_of(one.waits) is cause]
    worker = max(limited, key=lambda one: 0 if one.waits is None else one.waits.behind)
    assert worker.waits is not None  # noqa: S101  (it is behind)
    found, percent = _sentence(flow, cause, worker, worker.waits)
    if cause is Bottleneck.UNKNOWN:
        return FlowBottleneck(cause, found, "", worker.name, None, worker.waits.bytes_per_s)
    others = f"; likewise {len(limited) - 1} other of its {len(workers)} workers" if len(limited) > 1 else ""
    text = f"{found}, {_rate_text(worker.waits.bytes_per_s)}{others}"
    remedy = _remedy(flow, cause, worker, worker.waits, is_spread=tasks_max is None or len(workers) < tasks_max)
    return FlowBottleneck(cause, text, remedy, worker.name, percent, worker.waits.bytes_per_s)


def _unknown(why: str) -> FlowBottleneck:
    return FlowBottleneck(Bottleneck.UNKNOWN, f"not known: {why}", "", "", None, None)


def _most(waits: FlowWaits) -> str:
    """Return what its partitions wait for most often; empty: none of them is being copied."""
    return max(waits.waits, key=lambda word: waits.waits[word], default="")


def _sentence(flow: Flow, cause: Bottleneck, worker: LimitedWorker, waits: FlowWaits) -> tuple[str, int | None]:
    """Return the sentence, and the percentage in it."""
    most = _most(waits)
    percent = waits.waits.get(most, 0)
    match cause:
        case Bottleneck.QUOTA:
            percent = max(waits.source_throttled, waits.target_throttled)
            return f"a quota of {_throttling(flow, waits)} delays {worker.name} {percent} % of the time", percent
        case Bottleneck.RATE_LIMIT:
            percent = waits.waits.get(Wait.RATE, 0)
            return f"bytes.per.second.max delays reads of {worker.name} {percent} % of the time", percent
        case Bottleneck.PLANNING if waits.cpu_waited > waits.cpu:
            percent = waits.cpu + waits.cpu_waited
            return (
                f"the machine of {worker.name} has no free core: it runs {waits.cpu} % of the time, and waits for"
                f" a core {waits.cpu_waited} %"
            ), percent
        case Bottleneck.PLANNING if waits.cpu + waits.cpu_waited >= BUSY:
            percent = waits.cpu + waits.cpu_waited
            return f"one core of {worker.name} is busy{_with(waits)} ({percent} %)", percent
        case Bottleneck.PLANNING:
            return f"{worker.name} is busy{_with(waits)} {percent} % of the time", percent
        case Bottleneck.SOURCE_READ:
            how = f", {waits.source_ms} ms for a read" if waits.source_ms else ""
            return f"{worker.name} waits for answers of {flow.source} {percent} % of the time{how}", percent
        case Bottleneck.TARGET_WRITE:
            how = f", {waits.target_ms} ms for a write" if waits.target_ms else ""
            return f"{worker.name} waits for acknowledgements of {flow.target} {percent} % of the time{how}", percent
        case Bottleneck.LINK:
            side = flow.target if most == Wait.TARGET_LINK else flow.source
            used = f" over {worker.link.connections} connections" if worker.link is not None else ""
            far = f", whose brokers are {waits.round_trip_ms} ms away" if waits.round_trip_ms else ""
            return f"{worker.name} waits for the link to {side}{far}{used}, {percent} % of the time", percent
        case Bottleneck.MEMORY:
            size = f" ({waits.memory_bytes / 1e6:,.0f} MB)" if waits.memory_bytes else ""
            return f"memory.max.bytes{size} delays reads of {worker.name} {percent} % of the time", percent
        case _ if most:
            return f"not known: {worker.name} tells of {most}, which this version does not know", None
        case _:
            return f"not known: what is behind on {worker.name} is not being copied now", None


def _remedy(flow: Flow, cause: Bottleneck, worker: LimitedWorker, waits: FlowWaits, *, is_spread: bool) -> str:
    match cause:
        case Bottleneck.QUOTA:
            client, rate = (
                ("consumer", "consumer_byte_rate")
                if waits.source_throttled >= waits.target_throttled
                else ("producer", "producer_byte_rate")
            )
            cluster = _throttling(flow, waits)
            return f"Raise {rate}, or request_percentage, of the {client}'s user or client id on {cluster}."
        case Bottleneck.RATE_LIMIT:
            return f"Raise bytes.per.second.max of {flow}, or leave it out."
        case Bottleneck.PLANNING:
            return _remedy_for_core(worker, waits, is_spread=is_spread)
        case Bottleneck.SOURCE_READ:
            return f"Look at the disks and request threads of {flow.source}'s brokers, and at the network to them."
        case Bottleneck.TARGET_WRITE:
            return f"Look at the brokers of {flow.target}, their slowest replica above all, and at the network to them."
        case Bottleneck.LINK if worker.link is not None and worker.link.limit == Limit.CONNECTIONS:
            return "Raise connections.per.broker.max."
        case Bottleneck.LINK if _most(waits) == Wait.TARGET_LINK:
            return f"Run the workers beside {flow.target}: docs/long-links.md."
        case Bottleneck.LINK:
            return "See docs/long-links.md for what fills a link. A link that is full needs more bandwidth."
        case Bottleneck.MEMORY:
            return "Raise memory.max.bytes."
        case _:
            return ""


def _remedy_for_core(worker: LimitedWorker, waits: FlowWaits, *, is_spread: bool) -> str:
    if waits.cpu_waited > waits.cpu:
        return f"Give {worker.name} more CPU, or start a worker on another machine."
    if worker.core.startswith("without"):
        return "Install the compiled core (mm2py-native), or start it with --workers 2."
    if waits.behind == 1:
        passed = " With copy.mode=pass it does less." if waits.rebuilds == "repack" else ""
        return f"One core copies a partition, and only one is behind: more partitions are copied by more cores.{passed}"
    if not is_spread:
        return "Raise tasks.max, and start it with --workers 2 or another worker."
    return "Start it with --workers 2, or start another worker."


def _with(waits: FlowWaits) -> str:
    if not waits.rebuilds:
        return ""
    return " with repacking" if waits.rebuilds == "repack" else f" with rebuilding batches ({waits.rebuilds})"


def _throttling(flow: Flow, waits: FlowWaits) -> str:
    return flow.source if waits.source_throttled >= waits.target_throttled else flow.target


def _rate_text(bytes_per_s: int) -> str:
    return f"{bytes_per_s / 1e6:.1f} MB/s" if bytes_per_s >= 100_000 else f"{bytes_per_s / 1e3:.1f} KB/s"
