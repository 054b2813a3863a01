"""Judges what only the target of a flow tells: whether it can fence, a running MirrorMaker 2, and the clocks. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mm2py.checks.facts import FlowAnswers
from mm2py.checks.results import CheckResult, CheckState, ok, unknown
from mm2py.shared_settings.running_mm2 import CONNECT

TRANSACTIONS: Final = "__transaction_state"
TRANSACTIONS_FACTOR: Final = "transaction.state.log.replication.factor"
WARNS_MS: Final = 2_000
FAILS_MS: Final = 60 * 60 * 1000
"""A worker whose clock is so far ahead of the target copies nothing."""
_ONLY_ON_RECORDS: Final = "a broker tells its time only on records that it stores"


def judge_target(answers: FlowAnswers) -> Iterable[CheckResult]:
    """Return the results about fencing, MirrorMaker 2 and the clocks."""
    flow, source, target = str(answers.settings.flow), answers.source, answers.target
    if source.away is None:
        yield unknown(
            "MM0802", flow, f"The clock of {source.alias} is not known: {_ONLY_ON_RECORDS}, and mm2py check writes none"
        )
    else:
        yield unknown("MM0802", flow, f"{source.alias} does not answer", waits_for=str(source.alias))
    if target.away is not None:
        for code in ("MM0303", "MM0605", "MM0801"):
            yield unknown(code, flow, f"{target.alias} does not answer", waits_for=str(target.alias))
        return
    yield _fencing(answers)
    yield _mirror_maker(answers)
    yield _clock(answers)


def _fencing(answers: FlowAnswers) -> CheckResult:
    flow, target = str(answers.settings.flow), answers.target
    topic = answers.target_topics.get(TRANSACTIONS)
    if topic is not None and topic.is_there:
        if topic.leaderless:
            return CheckResult(
                "MM0303",
                CheckState.WARNING,
                flow,
                f"{TRANSACTIONS} of {target.alias} has partitions without a leader, so some transactional ids fail",
                "Start the brokers that hold its replicas.",
            )
        return ok("MM0303", flow, f"mm2py can fence dead workers on {target.alias}: {TRANSACTIONS} is there")
    factor = target.broker_settings.get(TRANSACTIONS_FACTOR)
    if factor is None or topic is None or topic.is_hidden:
        return unknown(
            "MM0303",
            flow,
            f"Whether mm2py can fence dead workers on {target.alias} is not known: {target.alias} shows neither"
            f" {TRANSACTIONS} nor {TRANSACTIONS_FACTOR}",
        )
    count = len(target.brokers)
    if int(factor) > count:
        must = answers.settings.exactly_once == "enabled"
        return CheckResult(
            "MM0303",
            CheckState.FAILED if must else CheckState.WARNING,
            flow,
            f"mm2py cannot fence dead workers on {target.alias}: {TRANSACTIONS_FACTOR} is {factor}, and {target.alias}"
            f" has {count} broker{'' if count == 1 else 's'}: "
            + ("the flow is refused" if must else "the flow is copied at least once"),
            f"Set {TRANSACTIONS_FACTOR} on the brokers of {target.alias} to {count} or less.",
        )
    return ok(
        "MM0303", flow, f"mm2py can fence dead workers on {target.alias}: it has enough brokers for {TRANSACTIONS}"
    )


def _mirror_maker(answers: FlowAnswers) -> CheckResult:
    flow, target, name = str(answers.settings.flow), answers.target, answers.settings.mm2_group_id
    group = answers.target_groups.get(name)
    if group is None or group.is_denied:
        why = answers.unread.get("target groups", "DESCRIBE on it is missing")
        return unknown(
            "MM0605",
            flow,
            f"Whether a MirrorMaker 2 runs the flow in group {name} of {target.alias} is not known: {why}",
        )
    if not group.members:
        return ok(
            "MM0605",
            flow,
            f"No MirrorMaker 2 runs the flow in group {name} of {target.alias}. MirrorMaker 2's connectors in"
            " another Connect cluster are not looked for",
        )
    if group.protocol_type == CONNECT and answers.mm2_only_emits_heartbeats:
        return ok("MM0605", flow, f"MirrorMaker 2 runs in group {name} of {target.alias}, and only emits heartbeats")
    return CheckResult(
        "MM0605",
        CheckState.FAILED,
        flow,
        f"A MirrorMaker 2 runs the flow: group {name} of {target.alias} has {group.members} member"
        f"{'' if group.members == 1 else 's'}",
        "Stop MirrorMaker 2 for this flow. mm2py then continues at its positions.",
    )


def _clock(answers: FlowAnswers) -> CheckResult:
    flow, alias, found = str(answers.settings.flow), answers.target.alias, answers.clock
    nothing = unknown(
        "MM0801", flow, f"The clock of {alias} is not known: {_ONLY_ON_RECORDS}, and no worker writes to {alias} now"
    )
    if found is None:
        return nothing
    ahead_ms = found.newest_ms - found.seen_until_ms  # the target's clock is at least so much ahead of ours
    behind_ms = 0 if found.seen_from_ms is None else found.seen_from_ms - found.newest_ms
    off_ms = max(ahead_ms, behind_ms)
    if off_ms < WARNS_MS:
        if found.seen_from_ms is None:
            return nothing
        return ok("MM0801", flow, f"The clocks of this machine and of {alias} agree to {WARNS_MS / 1000:g} s")
    way = "behind" if ahead_ms >= behind_ms else "ahead of"
    return CheckResult(
        "MM0801",
        CheckState.FAILED if off_ms >= FAILS_MS else CheckState.WARNING,
        flow,
        f"The clock of this machine is {off_ms // 1000} s or more {way} that of {alias}",
        "Set both right, for example with NTP.",
    )
