"""The verbs of a recovery that REST has, as one table: what each takes, and what it calls.

A verb that is added needs a model of its options, and one row. Its options have the names of the command's, so that the
same call can be shown as a command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field

from mm2py.backfill.verifying.verify_flow import MB, MB_PER_SECOND
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryAsked
from mm2py.dr.calls.complete_call import CompleteCall
from mm2py.dr.calls.drill_call import RECORDS_MOST, VERIFY_RECORDS, DrillCall, DrillOptions
from mm2py.dr.calls.extras_call import ExtrasCall
from mm2py.dr.calls.failback_call import FailbackCall
from mm2py.dr.calls.failover_call import FailoverCall, failover_point
from mm2py.dr.calls.fence_call import FenceCall, FenceOptions, hook_of
from mm2py.dr.calls.reinstate_call import ReinstateCall
from mm2py.dr.calls.run_call import RunCall
from mm2py.dr.calls.turn_call import TIMEOUT_MOST_S as TURN_TIMEOUT_MOST_S
from mm2py.dr.calls.turn_call import TIMEOUT_S as TURN_TIMEOUT_S
from mm2py.dr.calls.turn_call import TurnCall, TurnOptions
from mm2py.dr.calls.unfence_call import UnfenceCall
from mm2py.dr.cutover.pair import MAX_LAG, TIMEOUT_S, CutoverOptions
from mm2py.dr.extras.settlement import ExtrasChoice
from mm2py.dr.failover.actions import FailoverOptions
from mm2py.dr.failover.placing import LATEST
from mm2py.dr.fence.choosing import named_principals
from mm2py.dr.fence.record import FenceWay
from mm2py.dr.fence.verifying import TIMEOUT_S as FENCE_TIMEOUT_S
from mm2py.dr.runner import RecoveryGoal
from mm2py.errors import ConfigError
from mm2py.moments import span_s
from mm2py.status.bodies import JsonBody

HookTable = Mapping[str, tuple[str, ...]]
"""The commands that the worker's file names."""
TIMEOUT_MOST_S: Final = 86_400
NAMES_MOST: Final = 10_000
Names = tuple[str, ...]
_NAMES: Final[Any] = Field(default=(), max_length=NAMES_MOST)


class VerbOptions(JsonBody):
    """What every verb takes: nothing."""

    def words(self) -> Iterator[str]:
        """Return the same as words of a command line, without file, flow and reason."""
        for name, field in type(self).model_fields.items():
            value, option = getattr(self, name), f"--{name.replace('_', '-')}"
            if value == field.default:
                continue
            if isinstance(value, bool):
                yield option
            elif isinstance(value, tuple):
                if name in _LISTED:
                    yield from (option, *value)
                else:
                    yield from (word for one in value for word in (option, one))
            else:
                yield from (option, str(value))


_LISTED: Final = frozenset({"topics", "groups"})
"""Options that take several words."""


class _FencingOptions(VerbOptions):
    """How producers are stopped."""

    principal: Names = _NAMES
    """Also deny these, as User:app."""
    own_principal: Names = _NAMES
    """Names of mm2py itself that the file does not tell: they stay free."""
    hook_fence: str = ""
    """The name of a hook of the worker's file that stops producers, where there is no authorizer."""
    by_size: bool = False
    """By max.message.bytes of the topics."""
    accept_unproven_fence: bool = False
    """Although the plan names what the fence cannot prove."""
    end_hanging: bool = False
    """Abort the transactions that are open on the fenced topics."""


class _MovingOptions(_FencingOptions):
    groups: Names = _NAMES
    """Only these groups move."""
    leave_group: Names = _NAMES
    """These groups stay."""
    leave_topic: Names = _NAMES
    """Groups stay in these topics."""
    timeout: int = Field(default=TIMEOUT_S, ge=1, le=TIMEOUT_MOST_S)
    """Seconds from the fence to the switch; then all is taken back."""
    max_lag: int = Field(default=MAX_LAG, ge=0, le=10**12)
    """It does not begin while more records than that are not copied."""
    hook_switch: str = ""
    """The name of a hook of the worker's file that sends clients to the other cluster; empty: that is done by hand."""
    accept_coupled: bool = False
    """Topics move although transactions write to others with them."""


class CutoverBody(_MovingOptions):
    """``cutover``."""

    topics: Names = _NAMES
    """Only these, as the source names them."""
    reverse_window: str = Field(default="", examples=["30m"])
    """For how long a rollback may undo it; empty: until it is completed."""


class RollbackBody(_MovingOptions):
    """``rollback``."""

    leave_extras: bool = False
    """Although the other cluster has records that neither flow wrote."""


class CompleteBody(VerbOptions):
    """``complete``."""

    unverified: bool = False
    """Nothing is compared first."""
    max_mb_per_second: int = Field(default=MB_PER_SECOND, ge=1, le=1_000_000)
    """The comparison reads at most so much of both clusters together."""


class FailoverBody(VerbOptions):
    """``failover``."""

    to: str = Field(default=LATEST, max_length=64, examples=[LATEST, "safe", "10m"])
    """Where groups go on: each at its last known commit, or all at the first record at or after one moment."""
    accept_loss: bool = False
    """What the plan names as lost is accepted."""
    source_is_lost: bool = False
    """Although the source answers."""
    topics: Names = _NAMES
    """Only groups in these topics go on."""
    groups: Names = _NAMES
    """Only these groups."""
    leave_group: Names = _NAMES
    """These groups are not placed."""
    hook_switch: str = ""
    """The name of a hook of the worker's file that sends clients to the other cluster; empty: that is done by hand."""
    hook_fence: str = ""
    """The name of the hook by which producers of the target were fenced."""


class ExtrasBody(VerbOptions):
    """``extras``. Files are written by the command only."""

    topics: Names = _NAMES
    """Decide about these topics only."""
    replay: bool = False
    """Write their records to the target, in order, each once."""
    export_topic: str = Field(default="", max_length=249)
    """Write them to this topic of the target, with their origin."""
    leave: Names = _NAMES
    """Leave those of these topics on the source."""
    leave_all: bool = False
    """Leave those for which nothing else is said."""


class ReinstateBody(_FencingOptions, ExtrasBody):
    """``reinstate``."""

    timeout: int = Field(default=TIMEOUT_S, ge=1, le=TIMEOUT_MOST_S)
    """Seconds that the fence may take to be verified, and the flow to copy."""


class FailbackBody(CutoverBody):
    """``failback``: of the flow of the failover. It is the cutover that leads back."""


class FenceBody(_FencingOptions):
    """``fence``."""

    topics: Names = _NAMES
    """Only these, as the source names them."""
    timeout: int = Field(default=FENCE_TIMEOUT_S, ge=1, le=TIMEOUT_MOST_S)
    """Seconds that it may take to be verified."""


class UnfenceBody(VerbOptions):
    """``unfence``."""

    hook_fence: str = ""
    """The name of the hook that the fence was raised by."""


class TurnBody(VerbOptions):
    """``turn``."""

    off: bool = False
    """The flow is turned off, and the flow back is left as it is."""
    force: bool = False
    """Although the flow back has not copied all: the rest stays where it is."""
    timeout: int = Field(default=TURN_TIMEOUT_S, ge=1, le=TURN_TIMEOUT_MOST_S)
    """Seconds that workers may take to drain a flow."""


class DrillBody(VerbOptions):
    """``drill``. Files are written by the command only."""

    topics: Names = _NAMES
    """Only these, as the source names them."""
    groups: Names = _NAMES
    """Only these."""
    to: str = Field(default=LATEST, max_length=64, examples=[LATEST, "safe", "10m"])
    """Where groups would go on, as for a failover."""
    verify_records: int = Field(default=VERIFY_RECORDS, ge=0, le=RECORDS_MOST)
    """How many offsets at the end of each partition are compared with their copies; 0: none."""
    verify_all: bool = False
    """All records are compared."""


Carry = Callable[[Decide], Awaitable[CallOutcome]]
"""Carries a call out, if that is decided."""
Call = Callable[[RecoveryAsked, Any, HookTable], Carry]
"""Makes a call out of who asks, the options (of the row's model) and the hooks. Raises: ConfigError."""


@dataclass(frozen=True, slots=True)
class VerbRow:
    """One verb."""

    name: str
    text: str
    """What it does, in a sentence with A and B."""
    options: type[VerbOptions]
    call: Call


def _cutover(asked: RecoveryAsked, options: CutoverBody, hooks: HookTable) -> Carry:
    return RunCall(RecoveryGoal.CUTOVER, asked, _there(options, hooks), named_principals(options.own_principal)).run


def _failback(asked: RecoveryAsked, options: FailbackBody, hooks: HookTable) -> Carry:
    return FailbackCall(asked, _there(options, hooks), named_principals(options.own_principal)).run


def _rollback(asked: RecoveryAsked, options: RollbackBody, hooks: HookTable) -> Carry:
    wanted = replace(_moving(options, hooks), leaves_extras=options.leave_extras)
    return RunCall(RecoveryGoal.ROLLBACK, asked, wanted, named_principals(options.own_principal)).run


def _there(options: CutoverBody, hooks: HookTable) -> CutoverOptions:
    window_s = span_s(options.reverse_window) if options.reverse_window else None
    if options.reverse_window and window_s is None:
        raise ConfigError("reverse_window is no span.", remedy="Write it as 30m, 2h or 7d.")
    return replace(_moving(options, hooks), topics=options.topics, window_s=window_s)


def _moving(options: _MovingOptions, hooks: HookTable) -> CutoverOptions:
    return replace(
        _fencing(options, hooks, options.timeout),
        groups=options.groups,
        left_groups=options.leave_group,
        left_topics=options.leave_topic,
        max_lag=options.max_lag,
        switch_words=hook_named(options.hook_switch, hooks),
        accepts_coupled=options.accept_coupled,
    )


def _fencing(options: _FencingOptions, hooks: HookTable, timeout_s: int) -> CutoverOptions:
    words = hook_named(options.hook_fence, hooks)
    return CutoverOptions(
        timeout_s=float(timeout_s),
        way=FenceWay.SIZE if options.by_size else FenceWay.HOOK if words else FenceWay.ACLS,
        fence_hook=hook_of(words),
        fence_hook_name=words[0] if words else "",
        principals=named_principals(options.principal),
        accepts_unproven=options.accept_unproven_fence,
        ends_hanging=options.end_hanging,
    )


def _complete(asked: RecoveryAsked, options: CompleteBody, _: HookTable) -> Carry:
    limit = None if options.unverified else options.max_mb_per_second * MB
    return CompleteCall(RecoveryGoal.COMPLETE, asked, CutoverOptions(), bytes_per_second=limit).run


def _failover(asked: RecoveryAsked, options: FailoverBody, hooks: HookTable) -> Carry:
    words = hook_named(options.hook_fence, hooks)
    moved = CutoverOptions(
        topics=options.topics,
        groups=options.groups,
        left_groups=options.leave_group,
        switch_words=hook_named(options.hook_switch, hooks),
        way=FenceWay.HOOK if words else FenceWay.ACLS,
        fence_hook=hook_of(words),
        fence_hook_name=words[0] if words else "",
    )
    point = failover_point(options.to, asked.clock.wall_ms())
    return FailoverCall(
        RecoveryGoal.FAILOVER,
        asked,
        moved,
        wanted=FailoverOptions(point, options.accept_loss),
        is_source_lost=options.source_is_lost,
    ).run


def _reinstate(asked: RecoveryAsked, options: ReinstateBody, hooks: HookTable) -> Carry:
    wanted, own = _fencing(options, hooks, options.timeout), named_principals(options.own_principal)
    return ReinstateCall(RecoveryGoal.REINSTATE, asked, wanted, own, choice=_choice(options)).run


def _extras(asked: RecoveryAsked, options: ExtrasBody, _: HookTable) -> Carry:
    return ExtrasCall(RecoveryGoal.REINSTATE, asked, CutoverOptions(), choice=_choice(options)).run


def _choice(options: ExtrasBody) -> ExtrasChoice:
    return ExtrasChoice(
        topics=options.topics,
        export_topic=options.export_topic,
        replays=options.replay,
        leaves=options.leave,
        leaves_all=options.leave_all,
    )


def _fence(asked: RecoveryAsked, options: FenceBody, hooks: HookTable) -> Carry:
    wanted = FenceOptions(
        topics=options.topics,
        principals=named_principals(options.principal),
        own_principals=named_principals(options.own_principal),
        by_size=options.by_size,
        hook_words=hook_named(options.hook_fence, hooks),
        accepts_unproven=options.accept_unproven_fence,
        ends_hanging=options.end_hanging,
        timeout_s=options.timeout,
    )
    return FenceCall(asked, wanted).run


def _unfence(asked: RecoveryAsked, options: UnfenceBody, hooks: HookTable) -> Carry:
    return UnfenceCall(asked, hook_named(options.hook_fence, hooks)).run


def _turn(asked: RecoveryAsked, options: TurnBody, _: HookTable) -> Carry:
    return TurnCall(asked, TurnOptions(options.off, options.force, options.timeout)).run


def _drill(asked: RecoveryAsked, options: DrillBody, _: HookTable) -> Carry:
    compared = None if options.verify_all else options.verify_records
    return DrillCall(asked, DrillOptions(options.topics, options.groups, options.to, compared)).run


def hook_named(name: str, hooks: HookTable) -> tuple[str, ...]:
    """Return the words of a hook; none for an empty name. Raises: ConfigError, the file has no hook of this name."""
    if not name:
        return ()
    if name not in hooks:
        known = ", ".join(sorted(hooks)) or "none"
        raise ConfigError(
            f"The file of this worker has no hook of this name; it has {known}.",
            remedy="Over REST a hook is the name of a line dr.hook.NAME of that file.",
        )
    return hooks[name]


_ROWS: Final = (
    VerbRow(
        "cutover",
        "Moves producers and consumer groups from A to B: nothing is lost, nothing is read again.",
        CutoverBody,
        _cutover,
    ),
    VerbRow("rollback", "Undoes a cutover that stands: the same steps the other way round.", RollbackBody, _rollback),
    VerbRow(
        "complete",
        "Compares all that a cutover has switched, and ends it: it can be undone by a rollback no more.",
        CompleteBody,
        _complete,
    ),
    VerbRow(
        "failover",
        "A is lost: producers and consumer groups go on on B, as far as B has their records.",
        FailoverBody,
        _failover,
    ),
    VerbRow(
        "extras",
        "A is back: says what A has and B never got, or settles that once a reinstatement has fenced A.",
        ExtrasBody,
        _extras,
    ),
    VerbRow(
        "reinstate",
        "A is back: fences its producers, settles what only A has, and lets B->A copy what was written on B since.",
        ReinstateBody,
        _reinstate,
    ),
    VerbRow(
        "failback",
        "Moves producers and consumer groups from B back to A, behind a reinstatement. It is the cutover of B->A.",
        FailbackBody,
        _failback,
    ),
    VerbRow("fence", "Stops the producers of A, and verifies that nobody writes there any more.", FenceBody, _fence),
    VerbRow(
        "unfence",
        "Gives back what a fence of A has changed. Of a run that has not switched it takes all of it back.",
        UnfenceBody,
        _unfence,
    ),
    VerbRow(
        "turn",
        "Turns A->B on, and B->A off where only one of the two may run; or turns A->B off. Clients are not moved.",
        TurnBody,
        _turn,
    ),
    VerbRow(
        "drill",
        "Proves where each consumer group would go on after a failover to B now, and moves nothing.",
        DrillBody,
        _drill,
    ),
)
VERBS: Final[Mapping[str, VerbRow]] = MappingProxyType({row.name: row for row in _ROWS})
"""By name, in the order in which they are shown."""
