"""Judges the rights of the file's users, as the clusters tell them. Pure.

Brokers tell a user what it may do on a resource that it may describe. WRITE, READ and ALTER include DESCRIBE: where
DESCRIBE is missing, they are missing as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mm2py.checks.facts import ClusterAnswers, FlowAnswers
from mm2py.checks.results import CheckResult, CheckState, counted, ok, unknown
from mm2py.checks.rights import PLACEHOLDER, RightsNeed, grants, missing_operations

_SOFT: Final = frozenset({"MM0414", "MM0415", "MM0416"})
"""The flow copies without these rights."""
_INCLUDE_DESCRIBE: Final = frozenset({"READ", "WRITE", "ALTER", "DESCRIBE"})
_FOR_NEW_PARTITIONS: Final = "ALTER"


def judge_rights(answers: FlowAnswers, needs: Sequence[RightsNeed]) -> Iterable[CheckResult]:
    """Return the results about each row of the table of rights that the flow needs."""
    flow = str(answers.settings.flow)
    for need in needs:
        cluster = answers.source if need.on_source else answers.target
        if cluster.away is not None:
            yield unknown(need.row.code, flow, f"{cluster.alias} does not answer", waits_for=str(cluster.alias))
        elif cluster.has_authorizer is False:
            continue  # one line for all of them, below
        elif need.row.kind == "cluster":
            yield _cluster(answers, cluster, need)
        elif need.row.kind == "transactional id":
            yield _transactional_id(answers, cluster, need)
        else:
            if need.row.kind == "group" and need.on_source:
                yield from _unseen_groups(answers, need)
            yield from _resources(answers, cluster, need)
    for cluster, on_source in ((answers.source, True), (answers.target, False)):
        rows = [need for need in needs if need.on_source is on_source]
        if cluster.away is None and cluster.has_authorizer is False and rows:
            yield ok(rows[0].row.code, flow, f"{cluster.alias} has no authorizer: every user may do everything there")


def _granted(code: str, answers: FlowAnswers, cluster: ClusterAnswers, text: str) -> CheckResult:
    return ok(code, str(answers.settings.flow), f"{cluster.alias} allows {text}")


def _lacking(
    answers: FlowAnswers,
    cluster: ClusterAnswers,
    need: RightsNeed,
    operations: Sequence[str],
    names: Sequence[str],
    *,
    is_soft: bool = False,
) -> CheckResult:
    is_only_alter = tuple(operations) == (_FOR_NEW_PARTITIONS,)
    commands = grants(need, names, answers, operations=operations if is_only_alter else None)
    more = f" (and {len(commands) - 1} more commands: --json)" if len(commands) > 1 else ""
    replaced = " Put the user of mm2py in place of PRINCIPAL." if cluster.principal == PLACEHOLDER else ""
    what = counted(need.row.kind, names) if names else "the cluster"
    shown = need.row.name.replace("NAME", answers.settings.group) if need.is_prefix else what
    shown = f"{need.row.kind} {shown}" if need.is_prefix else shown
    told = " and ".join(operations) if len(operations) < 3 else ", ".join(operations)
    return CheckResult(
        need.row.code,
        CheckState.WARNING if is_soft else CheckState.FAILED,
        str(answers.settings.flow),
        f"{cluster.alias} denies {told} on {shown} (needed for {need.row.purpose})",
        f"{commands[0]}{more}{replaced}",
        tuple(names),
        commands,
    )


def _cluster(answers: FlowAnswers, cluster: ClusterAnswers, need: RightsNeed) -> CheckResult:
    told = cluster.operations
    if told is None:
        # DESCRIBE is missing, and so is what includes it. Whether DESCRIBE_CONFIGS is there shows when it is used.
        missing = [one for one in need.row.operations if one in _INCLUDE_DESCRIBE]
        if "DESCRIBE_CONFIGS" in need.row.operations and cluster.settings_unread is not None:
            missing.append("DESCRIBE_CONFIGS")
    else:
        missing = [one for one in need.row.operations if one not in told]
    if missing:
        return _lacking(answers, cluster, need, missing, ())
    return _granted(need.row.code, answers, cluster, f"{', '.join(need.row.operations)} on the cluster")


def _transactional_id(answers: FlowAnswers, cluster: ClusterAnswers, need: RightsNeed) -> CheckResult:
    name = need.row.name.replace("NAME", answers.settings.group)
    if answers.transactional_id_denied:
        return _lacking(answers, cluster, need, need.row.operations, need.names)
    about = f"WRITE on transactional id {name} of {cluster.alias}"
    if answers.transactional_id_denied is None:
        return unknown(
            need.row.code, str(answers.settings.flow), f"{about} is not known: {answers.unread.get('transactions', '')}"
        )
    return unknown(
        need.row.code,
        str(answers.settings.flow),
        f"{cluster.alias} allows DESCRIBE on transactional id {name}; whether it allows WRITE shows only when a worker"
        " writes",
        hint=f"If a worker logs producer.degraded, run: {grants(need, need.names, answers)[0]}",
    )


def _unseen_groups(answers: FlowAnswers, need: RightsNeed) -> Iterable[CheckResult]:
    """Return that not all groups were checked, if that shows: brokers leave out those that may not be described."""
    flow, alias, unread = str(answers.settings.flow), answers.source.alias, answers.unread.get("source groups")
    if unread:
        yield unknown(need.row.code, flow, f"Not all rights on groups of {alias} were checked. {unread}")
    elif not need.names:
        command = grants(need, ["*"], answers)[0]
        yield unknown(
            need.row.code,
            flow,
            f"{alias} shows no group that groups selects: none exists, or DESCRIBE on it is missing. Rights on groups"
            " were not checked",
            hint=f"If {alias} has such groups, grant DESCRIBE on them, for example on all: {command}",
        )


def _resources(answers: FlowAnswers, cluster: ClusterAnswers, need: RightsNeed) -> Iterable[CheckResult]:
    flow = str(answers.settings.flow)
    lacking: dict[tuple[str, ...], list[str]] = {}
    not_told: list[str] = []
    good: list[str] = []
    for name in need.names:
        missing = _missing(answers, cluster, need, name)
        if missing is None:
            not_told.append(name)
        elif missing:
            lacking.setdefault(tuple(missing), []).append(name)
        else:
            good.append(name)
    for operations, names in lacking.items():
        is_soft = need.row.code in _SOFT or (operations == (_FOR_NEW_PARTITIONS,) and need.row.code == "MM0402")
        yield _lacking(answers, cluster, need, operations, names, is_soft=is_soft)
    if not_told:
        yield unknown(
            need.row.code, flow, f"{cluster.alias} does not tell the rights on {counted(need.row.kind, not_told)}"
        )
    if good:
        text = f"{', '.join(need.row.operations)} on {counted(need.row.kind, good)}"
        yield _granted(need.row.code, answers, cluster, text)


def _missing(answers: FlowAnswers, cluster: ClusterAnswers, need: RightsNeed, name: str) -> list[str] | None:
    """Return the operations of a row that are missing on one resource; None: not told."""
    if need.row.kind == "group":
        group = (answers.source_groups if need.on_source else answers.target_groups).get(name)
        if group is None:
            return None
        if group.is_denied:
            return [one for one in need.row.operations if one in _INCLUDE_DESCRIBE]
        if need.row.operations == ("DESCRIBE",):
            return []
        return missing_operations(need, group.operations, is_there=True, may_create_all=False)
    topic = (answers.source_topics if need.on_source else answers.target_topics).get(name)
    if topic is None:
        return None
    if topic.is_hidden:
        return [one for one in need.row.operations if one in _INCLUDE_DESCRIBE] or None
    return missing_operations(
        need, topic.operations, is_there=topic.is_there, may_create_all=cluster.may_create_topics is True
    )
