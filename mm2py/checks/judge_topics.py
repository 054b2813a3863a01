"""Judges the topics of a flow: internal topics, the names of remote topics, and sizes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mm2py.checks.checked_topics import CheckedTopic
from mm2py.checks.facts import FlowAnswers, TopicAnswer
from mm2py.checks.results import CheckResult, CheckState, counted, ok, unknown
from mm2py.config.settings import FlowSettings
from mm2py.flow import Flow
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.replicas import AtMost, replicas_on
from mm2py.topics.topic_configs import remote_topic_configs

MAX_MESSAGE_BYTES: Final = "max.message.bytes"
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP_POLICY: Final = "cleanup.policy"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
ASKED_CONFIGS: Final = (MAX_MESSAGE_BYTES, RETENTION_MS, RETENTION_BYTES, CLEANUP_POLICY)
"""The settings of topics that are compared."""
BROKER_DEFAULTS: Final = {
    MAX_MESSAGE_BYTES: "message.max.bytes",
    RETENTION_MS: "log.retention.ms",
    RETENTION_BYTES: "log.retention.bytes",
    CLEANUP_POLICY: "log.cleanup.policy",
}
"""The brokers' settings that a topic without a value of its own has."""
UNLIMITED: Final = -1


def judge_internal_topics(
    answers: FlowAnswers, wanted: Sequence[CheckedTopic], *, before_first_start: bool
) -> Iterable[CheckResult]:
    """Return the results about internal topics.

    Args:
        before_first_start: mm2py has never run these flows, so the topics need not exist.
    """
    for on_source in (False, True):
        cluster = answers.source if on_source else answers.target
        topics = answers.source_topics if on_source else answers.target_topics
        ours = [one for one in wanted if one.on_source is on_source]
        if not ours:
            continue
        if cluster.away is not None:
            yield from _away(("MM0501", "MM0502", "MM0503", "MM0504"), answers, str(cluster.alias))
            continue
        known = [(one, topics[one.name]) for one in ours if one.name in topics]
        yield from _existence(answers, str(cluster.alias), known, before_first_start=before_first_start)
        there = [(one, found) for one, found in known if found.is_there]
        yield from _settings(answers, str(cluster.alias), there)
        yield from _writable(answers, str(cluster.alias), there)
        missing = [one for one, found in known if not found.is_there and not found.is_hidden]
        yield from _creatable(answers, str(cluster.alias), missing, len(cluster.brokers))


def _away(codes: Iterable[str], answers: FlowAnswers, alias: str) -> Iterable[CheckResult]:
    for code in codes:
        yield unknown(code, str(answers.settings.flow), f"{alias} does not answer", waits_for=alias)


Known = Sequence[tuple[CheckedTopic, TopicAnswer]]


def _existence(answers: FlowAnswers, alias: str, known: Known, *, before_first_start: bool) -> Iterable[CheckResult]:
    flow = str(answers.settings.flow)
    hidden = [one.name for one, found in known if found.is_hidden]
    if hidden:
        yield unknown(
            "MM0501",
            flow,
            f"Whether {counted('internal topic', hidden)} {'exists' if len(hidden) == 1 else 'exist'} on {alias} is not"
            " known: DESCRIBE is missing",
        )
    missing = [one.name for one, found in known if not found.is_there and not found.is_hidden]
    there = [one.name for one, found in known if found.is_there]
    if missing and before_first_start:
        yield ok("MM0501", flow, f"The first worker creates {counted('internal topic', missing)} on {alias}", missing)
    elif missing:
        yield CheckResult(
            "MM0501",
            CheckState.WARNING,
            flow,
            f"{counted('internal topic', missing)} {'does' if len(missing) == 1 else 'do'} not exist on {alias}",
            "If mm2py has not run yet, use --pre: the first worker creates what is missing. If it has run, find out who"
            " deleted it before you start a worker.",
            tuple(missing),
        )
    if there:
        yield ok("MM0501", flow, f"{counted('internal topic', there)} of {alias} {_is(there)} there", there)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _settings(answers: FlowAnswers, alias: str, there: Known) -> Iterable[CheckResult]:
    flow = str(answers.settings.flow)
    good: list[str] = []
    unread: list[str] = []
    for one, found in there:
        if found.configs is None:
            unread.append(one.name)
            continue
        wrong = {
            key: value
            for key in one.must_be
            if (value := found.config(key)) is not None and value != one.topic.configs[key]
        }
        if wrong:
            has = ", ".join(f"{key}={value}" for key, value in wrong.items())
            change = ",".join(f"{key}={one.topic.configs[key]}" for key in wrong)
            yield CheckResult(
                "MM0502",
                CheckState.FAILED if one.is_refused else CheckState.WARNING,
                flow,
                f"{one.name} on {alias} would lose {one.keeps}: it has {has}",
                f"kafka-configs --bootstrap-server {_address(answers, one)} --alter --topic {one.name}"
                f" --add-config {change}",
                (one.name,),
            )
        elif one.has_one_partition and found.partitions > 1:
            yield CheckResult(
                "MM0502",
                CheckState.FAILED,
                flow,
                f"{one.name} on {alias} has {found.partitions} partitions: its readers would not see the same order",
                "Stop all workers and delete the topic, and mm2py creates it again; or set another mm2py.group.",
                (one.name,),
            )
        else:
            good.append(one.name)
    if unread:
        yield unknown(
            "MM0502",
            flow,
            f"{alias} does not tell the settings of {counted('internal topic', unread)}: DESCRIBE_CONFIGS is missing",
        )
    if good:
        yield ok("MM0502", flow, f"{counted('internal topic', good)} of {alias} {_keep(good)} what is written", good)


def _keep(names: Sequence[str]) -> str:
    return "keeps" if len(names) == 1 else "keep"


def _address(answers: FlowAnswers, one: CheckedTopic) -> str:
    return (answers.source if one.on_source else answers.target).first_address


def _writable(answers: FlowAnswers, alias: str, there: Known) -> Iterable[CheckResult]:
    flow = str(answers.settings.flow)
    good: list[str] = []
    for one, found in there:
        in_sync = found.config(MIN_INSYNC_REPLICAS)
        if found.leaderless:
            shown = ", ".join(map(str, found.leaderless[:5]))
            yield CheckResult(
                "MM0503",
                CheckState.FAILED,
                flow,
                f"{one.name} on {alias} has no leader for partition {shown}",
                "Start the brokers that hold its replicas.",
                (one.name,),
            )
        elif in_sync is not None and found.replicas and int(in_sync) > found.replicas:
            yield CheckResult(
                "MM0503",
                CheckState.FAILED,
                flow,
                f"{one.name} on {alias} has {found.replicas} replica{'' if found.replicas == 1 else 's'} and"
                f" {MIN_INSYNC_REPLICAS}={in_sync}: it cannot be written",
                f"kafka-configs --bootstrap-server {_address(answers, one)} --alter --topic {one.name}"
                f" --add-config {MIN_INSYNC_REPLICAS}={found.replicas}, or add replicas.",
                (one.name,),
            )
        else:
            good.append(one.name)
    if good:
        yield ok(
            "MM0503",
            flow,
            f"{counted('internal topic', good)} of {alias} {_has(good)} leaders and enough replicas",
            good,
        )


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _creatable(
    answers: FlowAnswers, alias: str, missing: Sequence[CheckedTopic], brokers: int
) -> Iterable[CheckResult]:
    flow = str(answers.settings.flow)
    good: list[str] = []
    by_setting: dict[tuple[str, int], list[str]] = {}
    for one in missing:
        factor = replicas_on(brokers, one.replication_factor)
        if brokers and factor > brokers:
            by_setting.setdefault((one.setting, factor), []).append(one.name)
        else:
            good.append(one.name)
    for (setting, factor), names in by_setting.items():
        yield CheckResult(
            "MM0504",
            CheckState.FAILED,
            flow,
            f"{counted('internal topic', names)} cannot be created on {alias}: {setting} is {factor}, and {alias} has"
            f" {brokers} broker{'' if brokers == 1 else 's'}",
            f"Set {setting} to {brokers} or less.",
            tuple(names),
        )
    if good:
        yield ok("MM0504", flow, f"{alias} has enough brokers for {counted('missing internal topic', good)}", good)


# Names


def judge_names(answers: FlowAnswers, claims: Mapping[str, Sequence[Flow]]) -> Iterable[CheckResult]:
    """Return the results about the topics that the flow selects, and their remote topics.

    Args:
        claims: by remote topic of this flow's target, the flows of the file that copy into it without ``many.to.one``.
    """
    settings, source, target = answers.settings, answers.source, answers.target
    flow = str(settings.flow)
    codes = ("MM0601", "MM0602", "MM0603", "MM0604")
    if source.away is not None:
        yield from _away(codes, answers, str(source.alias))
        return
    yield from _selection(answers)
    if not answers.selected:
        return
    remotes: dict[str, str] = {}
    alike: list[str] = []
    for topic in answers.selected:
        if (other := remotes.setdefault(settings.remote_topic(topic), topic)) != topic:
            alike += [one for one in (other, topic) if one not in alike]
    if target.away is not None:
        yield from _away(codes[1:3], answers, str(target.alias))
    else:
        yield from _free(answers)
        yield from _allowed(answers, remotes)
    shared = [topic for remote, topic in remotes.items() if len(set(claims.get(remote, ()))) > 1]
    if alike:
        yield CheckResult(
            "MM0604",
            CheckState.FAILED,
            flow,
            f"{counted('topic', alike)}: topics.rename gives two or more of them the same name, and only one is copied",
            "Put rules that tell them apart in front in topics.rename, or exclude all but one.",
            tuple(alike),
        )
    if shared:
        others = sorted({str(one) for remote in remotes for one in claims.get(remote, ()) if one != settings.flow})
        yield CheckResult(
            "MM0604",
            CheckState.FAILED,
            flow,
            f"{counted('topic', shared)}: {', '.join(others)} copies into the same remote topic",
            "Exclude them from all but one of the flows, or set many.to.one=true on each.",
            tuple(shared),
        )
    elif not alike:
        yield ok("MM0604", flow, "Each remote topic gets one topic of one flow of the file")


def _selection(answers: FlowAnswers) -> Iterable[CheckResult]:
    settings = answers.settings
    flow, alias = str(settings.flow), str(settings.flow.source)
    denied = [name for name in answers.selected if answers.source_topics[name].is_hidden]
    shown = [name for name in answers.selected if name not in denied]
    if answers.hidden:
        yield CheckResult(
            "MM0601",
            CheckState.WARNING,
            flow,
            f"{alias} does not show {counted('topic', answers.hidden)}. Either {alias} has no such topic, or DESCRIBE"
            " is missing",
            f"Create what is missing on {alias}, grant DESCRIBE on it, or remove it from topics.",
            answers.hidden,
        )
    if answers.unmatched:
        yield CheckResult(
            "MM0601",
            CheckState.WARNING,
            flow,
            f"{alias} shows no topic that {counted('pattern', answers.unmatched)} of topics matches",
            f"Correct the pattern. If {alias} has such topics, grant DESCRIBE on them, and check again: their other"
            " rights are checked only when they are shown.",
            answers.unmatched,
        )
    if answers.undecided:
        yield CheckResult(
            "MM0601",
            CheckState.WARNING,
            flow,
            f"A pattern takes too long to match {counted('topic', answers.undecided)}, so it is not copied",
            "Rewrite the part of the pattern that can match the same text in many ways, such as (a|aa)+.",
            answers.undecided,
        )
    if denied:
        yield unknown(
            "MM0601", flow, f"{alias} does not tell whether it has {counted('topic', denied)}: DESCRIBE is missing"
        )
    if shown:
        count = sum(answers.source_topics[name].partitions for name in shown)
        yield ok("MM0601", flow, f"It selects {counted('topic', shown)} of {alias}, with {count} partitions", shown)
    elif not (denied or answers.hidden or answers.unmatched):
        yield CheckResult(
            "MM0601",
            CheckState.WARNING,
            flow,
            f"It selects no topic that {alias} shows",
            "Correct topics and topics.exclude, or grant DESCRIBE on the topics.",
        )


def _free(answers: FlowAnswers) -> Iterable[CheckResult]:
    settings, alias = answers.settings, str(answers.target.alias)
    flow = str(settings.flow)
    if settings.many_to_one:
        yield ok("MM0602", flow, "With many.to.one its remote topics may hold records of others")
        return
    if settings.standby and settings.flow_back is not None:
        text = f"It takes turns with {settings.flow_back.flow}: where it begins is stored when it is turned on"
        yield ok("MM0602", flow, text)
        return
    filled = [topic for topic in answers.selected if topic in answers.filled]
    if filled and answers.positions_unread:
        yield unknown(
            "MM0602",
            flow,
            f"Whether {counted('remote topic', _remotes(settings, filled))} on {alias}, which hold records, belong to"
            f" this flow is not known: {answers.positions_unread}",
        )
        return
    occupied = [topic for topic in filled if set(answers.filled[topic]) - answers.placed.get(topic, frozenset())]
    if occupied:
        remotes = _remotes(settings, occupied)
        keep = "Do not delete it: it may hold records that are nowhere else. " if settings.policy.keeps_names else ""
        yield CheckResult(
            "MM0602",
            CheckState.FAILED,
            flow,
            f"{counted('remote topic', remotes)} on {alias} {'holds' if len(remotes) == 1 else 'hold'} records, and"
            f" {flow} has stored no position for them, so it copies nothing there",
            f"{keep}Do as docs/offsets.md says under 'Going on behind what is there'. Only if nothing in it came from"
            f" {answers.source.alias}: start each worker with --allow-recopy '{flow}:{occupied[0]}'.",
            tuple(remotes),
        )
    unseen = [topic for topic in answers.selected if _is_hidden(answers, settings.remote_topic(topic))]
    if unseen:
        yield unknown(
            "MM0602",
            flow,
            f"Whether {counted('remote topic', _remotes(settings, unseen))} on {alias} holds records of others is not"
            " known: DESCRIBE is missing",
        )
    placed = answers.placed
    silent = [topic for topic, numbers in answers.unlooked.items() if set(numbers) - placed.get(topic, frozenset())]
    if silent:
        why = answers.unread.get("filled", "some of its partitions have no leader that answers")
        yield unknown(
            "MM0602",
            flow,
            f"Whether {counted('remote topic', _remotes(settings, silent))} on {alias} holds records of others is not"
            f" known: {why}",
        )
    free = [topic for topic in answers.selected if topic not in {*occupied, *unseen, *silent}]
    if free:
        yield ok(
            "MM0602",
            flow,
            f"{counted('remote topic', _remotes(settings, free))} on {alias} {_is(free)} empty, missing, or filled by"
            " this flow",
        )


def _is_hidden(answers: FlowAnswers, remote: str) -> bool:
    found = answers.target_topics.get(remote)
    return found is not None and found.is_hidden


def _remotes(settings: FlowSettings, topics: Iterable[str]) -> list[str]:
    return [settings.remote_topic(topic) for topic in topics]


def _allowed(answers: FlowAnswers, remotes: Mapping[str, str]) -> Iterable[CheckResult]:
    flow, alias = str(answers.settings.flow), str(answers.target.alias)
    bad: dict[str, list[str]] = {}
    alike: dict[str, str] = {}
    for name in sorted(answers.target_names):
        alike.setdefault(name.replace(".", "_"), name)
    for remote in remotes:
        problem = answers.settings.remote_problem(remotes[remote])
        if problem is not None:
            bad.setdefault(problem, []).append(remote)
            continue
        other = alike.setdefault(remote.replace(".", "_"), remote)
        if other != remote and remote not in answers.target_names:
            bad.setdefault(f"there is {other}, whose name differs only in '.' and '_'", []).append(remote)
    for why, names in bad.items():
        yield CheckResult(
            "MM0603",
            CheckState.FAILED,
            flow,
            f"{counted('remote topic', [_short(name) for name in names])} cannot be created on {alias}: {why}",
            "Exclude the topic, shorten the alias, set another replication.policy.separator, or change topics.rename.",
            tuple(names),
        )
    if not bad:
        yield ok("MM0603", flow, f"{alias} accepts the names of all remote topics")


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:60]}..."


def claims_of(answers: Iterable[FlowAnswers]) -> dict[str, dict[str, list[Flow]]]:
    """Return, by target and remote topic, the flows of a file that copy into it without ``many.to.one``."""
    found: dict[str, dict[str, list[Flow]]] = {}
    for one in answers:
        if one.settings.many_to_one:
            continue
        for topic in one.selected:
            by_topic = found.setdefault(str(one.settings.flow.target), {})
            by_topic.setdefault(one.settings.remote_topic(topic), []).append(one.settings.flow)
    return found


# Sizes


def judge_sizes(answers: FlowAnswers) -> Iterable[CheckResult]:
    """Return the results about sizes, retention, backlog and limits of a flow."""
    settings, source, target = answers.settings, answers.source, answers.target
    if target.away is None:
        yield _replicas(settings, len(target.brokers))
    else:
        yield from _away(("MM0701", "MM0702", "MM0703", "MM0704"), answers, str(target.alias))
    if source.away is not None:
        codes = ("MM0705",) if target.away is not None else ("MM0701", "MM0702", "MM0703", "MM0705")
        yield from _away(codes, answers, str(source.alias))
        return
    if not answers.selected:
        return
    yield _partitions(answers)
    if target.away is None:
        yield from _backlog(answers)
        yield from _message_sizes(answers)
        yield from _retention(answers)


def _replicas(settings: FlowSettings, brokers: int) -> CheckResult:
    flow, alias, factor = str(settings.flow), settings.flow.target, settings.replication_factor
    if brokers and factor > brokers and not isinstance(factor, AtMost):
        return CheckResult(
            "MM0704",
            CheckState.FAILED,
            flow,
            f"No remote topic can be created on {alias}: replication.factor is {factor}, and {alias} has {brokers}"
            f" broker{'' if brokers == 1 else 's'}",
            f"Set replication.factor to {brokers} or less, or to -1 to leave it to {alias}.",
        )
    shown = replicas_on(brokers, factor)
    return ok(
        "MM0704",
        flow,
        f"New remote topics get {shown} replica{'' if shown == 1 else 's'}"
        if shown > 0
        else f"{alias} decides how many replicas new remote topics get",
    )


def _partitions(answers: FlowAnswers) -> CheckResult:
    settings = answers.settings
    flow, most = str(settings.flow), settings.remote_partitions_max
    count = sum(answers.source_topics[name].partitions for name in answers.selected)
    if any(answers.source_topics[name].is_hidden for name in answers.selected):
        return unknown(
            "MM0705", flow, "How many partitions it selects is not known: DESCRIBE is missing on some topics"
        )
    if count > most:
        return CheckResult(
            "MM0705",
            CheckState.FAILED,
            flow,
            f"It selects {count:,} partitions, and remote.partitions.max is {most:,}: not all topics are copied",
            "Raise remote.partitions.max, or select fewer topics.",
        )
    return ok("MM0705", flow, f"It selects {count:,} partitions, and remote.partitions.max allows {most:,}")


def effective(answers: FlowAnswers, topic: str, key: str) -> tuple[str | None, str | None]:
    """Return a setting of a source topic and of its remote topic, or the value that a new one would get.

    None: not known.
    """
    upstream = answers.source_topics.get(topic)
    remote = answers.target_topics.get(answers.settings.remote_topic(topic))
    ours = None if upstream is None else upstream.config(key)
    if remote is not None and remote.is_there:
        return ours, remote.config(key)
    if upstream is None or upstream.configs is None:
        return ours, None
    try:
        chosen = remote_topic_configs(upstream.configs.values(), answers.settings.config_filter)
    except PatternTooSlow:
        return ours, None
    if key in chosen:
        return ours, chosen[key]
    default = answers.target.broker_settings.get(BROKER_DEFAULTS[key])
    if default is None and key == RETENTION_MS:  # a broker shows it only if it is set
        hours = answers.target.broker_settings.get("log.retention.hours")
        default = None if hours is None else str(int(hours) * 3_600_000 if int(hours) >= 0 else UNLIMITED)
    return ours, default


def _pairs(answers: FlowAnswers, key: str) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Return a number of each topic and its remote topic, and the topics of which one is not known."""
    known: dict[str, tuple[int, int]] = {}
    unread: list[str] = []
    for topic in answers.selected:
        ours, theirs = effective(answers, topic, key)
        if ours is None or theirs is None:
            unread.append(topic)
        else:
            known[topic] = (int(ours), int(theirs))
    return known, unread


def _unread(code: str, answers: FlowAnswers, key: str, topics: Sequence[str]) -> Iterable[CheckResult]:
    if topics:
        why = " ".join(answers.unread.get(which, "") for which in ("source configs", "target configs")).strip()
        yield unknown(
            code,
            str(answers.settings.flow),
            f"{key} of {counted('topic', topics)} or its remote topic is not known. {why}".strip(),
        )


def _message_sizes(answers: FlowAnswers) -> Iterable[CheckResult]:
    flow, alias = str(answers.settings.flow), str(answers.target.alias)
    known, unread = _pairs(answers, MAX_MESSAGE_BYTES)
    smaller: dict[tuple[int, int], list[str]] = {}
    for topic, (ours, theirs) in known.items():
        if theirs < ours:
            smaller.setdefault((ours, theirs), []).append(topic)
    for (ours, theirs), topics in smaller.items():
        yield CheckResult(
            "MM0701",
            CheckState.WARNING,
            flow,
            f"{counted('topic', topics)}: records of {theirs:,} to {ours:,} bytes do not fit into the remote topic on"
            f" {alias} ({MAX_MESSAGE_BYTES})",
            f"Set {MAX_MESSAGE_BYTES}={ours} on {counted('remote topic', _remotes(answers.settings, topics))}; for one"
            f" that does not exist yet, message.max.bytes on the brokers of {alias}.",
            tuple(topics),
        )
    fit = [topic for topic in known if known[topic][1] >= known[topic][0]]
    if fit:
        yield ok(
            "MM0701",
            flow,
            f"The remote topics of {counted('topic', fit)} take records as large as {answers.source.alias} does",
        )
    yield from _unread("MM0701", answers, MAX_MESSAGE_BYTES, unread)


def _retention(answers: FlowAnswers) -> Iterable[CheckResult]:
    flow, alias = str(answers.settings.flow), str(answers.target.alias)
    shorter: dict[str, list[str]] = {}
    unread: set[str] = set()
    fine = {*answers.selected}
    for key, shown in ((RETENTION_MS, _duration), (RETENTION_BYTES, _bytes)):
        known, missing = _pairs(answers, key)
        unread |= {*missing}
        for topic, (ours, theirs) in known.items():
            _, policy = effective(answers, topic, CLEANUP_POLICY)
            if policy is not None and "delete" not in policy:
                continue  # a compacted topic deletes nothing by its age or size
            if theirs != UNLIMITED and (ours == UNLIMITED or theirs < ours):
                shorter.setdefault(
                    f"{shown(theirs)} on {alias}, {shown(ours)} on {answers.source.alias} ({key})", []
                ).append(topic)
                fine.discard(topic)
    for text, topics in shorter.items():
        yield CheckResult(
            "MM0702",
            CheckState.WARNING,
            flow,
            f"{counted('topic', topics)}: the copy keeps less: {text}",
            f"Raise it on {counted('remote topic', _remotes(answers.settings, topics))}, if it must keep as much.",
            tuple(topics),
        )
    fine -= unread
    if fine:
        names = counted("topic", sorted(fine))
        yield ok("MM0702", flow, f"The remote topics of {names} keep records as long as {answers.source.alias} does")
    yield from _unread("MM0702", answers, "The retention", sorted(unread))


def _duration(milliseconds: int) -> str:
    if milliseconds < 0:
        return "for ever"
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if milliseconds >= unit:
            return f"{milliseconds / unit:.3g} {name}"
    return f"{milliseconds} ms"


def _bytes(count: int) -> str:
    return "any number of bytes" if count < 0 else f"{count:,} bytes"


def _backlog(answers: FlowAnswers) -> Iterable[CheckResult]:
    flow, alias = str(answers.settings.flow), str(answers.source.alias)
    if answers.positions_unread:
        yield unknown("MM0703", flow, f"How far the flow has copied is not known: {answers.positions_unread}")
        return
    lost: list[str] = []
    late: list[str] = []
    ageless: list[str] = []
    for (topic, number), found in sorted(answers.partitions.items()):
        name = f"{topic}-{number}"
        if found.position < found.first:
            lost.append(name)
        elif found.position < found.last and not found.is_age_known:
            ageless.append(name)
        elif found.old_until is not None and found.position < min(found.old_until, found.last):
            late.append(name)
    if lost:
        yield CheckResult(
            "MM0703",
            CheckState.FAILED,
            flow,
            f"{counted('partition', lost)} of {alias}: records have expired before they were copied",
            "They are reported as a gap when a worker runs: mm2py gaps FILE. Raise retention.ms of the topic.",
            tuple(lost),
        )
    if late:
        yield CheckResult(
            "MM0703",
            CheckState.WARNING,
            flow,
            f"{counted('partition', late)} of {alias}: the next record to copy has less than a quarter of retention.ms"
            " left",
            "Raise retention.ms of the topic until the flow has caught up.",
            tuple(late),
        )
    looked_at = len(answers.partitions) - len(ageless)
    if not lost and not late and looked_at:
        yield ok(
            "MM0703",
            flow,
            f"No record of {alias} that is still to be copied expires soon: mm2py looked at {looked_at:,}"
            f" partition{'' if looked_at == 1 else 's'}",
        )
    yield from _backlog_not_known(answers, ageless)


def _backlog_not_known(answers: FlowAnswers, ageless: Sequence[str]) -> Iterable[CheckResult]:
    """Return the results about partitions whose backlog is not known. ``ageless``: those of unknown retention."""
    flow, alias, unread = str(answers.settings.flow), str(answers.source.alias), answers.unread
    placed = [(topic, number) for topic, numbers in sorted(answers.placed.items()) for number in sorted(numbers)]
    silent = [f"{topic}-{number}" for topic, number in placed if (topic, number) not in answers.partitions]
    if silent:
        why = unread.get("offsets", "no leader answers")
        yield unknown("MM0703", flow, f"The offsets of {counted('partition', silent)} of {alias} are not known: {why}")
    if ageless:
        why = unread.get("source configs", "no leader answers")
        text = f"For how long {alias} keeps the next record of {counted('partition', ageless)} is not known: {why}"
        yield unknown("MM0703", flow, text)
    # Without a position it is not known which record is the next: the oldest of a topic always expire soon.
    new = [
        topic
        for topic in answers.selected
        if answers.source_topics[topic].is_hidden
        or not answers.placed.get(topic, frozenset()).issuperset(range(answers.source_topics[topic].partitions))
    ]
    if new:
        text = f"Of {counted('topic', new)}, not all partitions have a position yet: their backlog is not known"
        yield unknown("MM0703", flow, text)
