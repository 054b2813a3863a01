"""Judges what one cluster answered: addresses, TLS and logins, versions, and how far away it is. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mm2py.checks.facts import BrokerAnswer, ClusterAnswers, Obstacle, Unanswered
from mm2py.checks.results import CheckResult, CheckState, counted, ok, unknown
from mm2py.kafka import messages
from mm2py.kafka.security.settings import KerberosCredential, PasswordCredential

_FIRST_LEVELS: Final = {
    "3.0": 1, "3.1": 2, "3.2": 3, "3.3": 4, "3.4": 8, "3.5": 9, "3.6": 12, "3.7": 15, "3.8": 20, "3.9": 21, "4.0": 22,
    "4.1": 26, "4.2": 28, "4.3": 30, "4.4": 31,
}  # fmt: skip
"""By Kafka's version, its first ``metadata.version``. Source: MetadataVersion.java, Apache Kafka 4.4."""
LAST_SUPPORTED: Final = 33
NEWEST: Final = "4.4"
OLDEST: Final = "3.3"
FIRST_SUPPORTED: Final = _FIRST_LEVELS[OLDEST]
SINCE_OLDEST: Final = (int(messages.DescribeLogDirsRequest.__api_key__), 4)
"""A request, and its version that came with ``OLDEST``. Earlier brokers name no ``metadata.version``, and neither do
later ones that use ZooKeeper."""
BEFORE_OLDEST: Final = f"before {OLDEST}"
DAY_MS: Final = 24 * 60 * 60 * 1000
CERTIFICATE_LASTS_MS: Final = 30 * DAY_MS
OF_CLUSTERS: Final = (
    *("MM0101", "MM0102", "MM0103", "MM0104", "MM0201", "MM0202", "MM0301", "MM0302", "MM0901", "MM0902"),
)
"""The checks that are made once for each cluster."""
FAR_S: Final = 0.005
"""From here on mm2py reads and writes a backlog over several connections."""
TUNED: Final = "-1"
"""The value of a socket buffer's setting that leaves its size to the kernel."""
UNDER_WAY: Final = 1.8
"""How many times the size of its buffer a connection has under way at most (docs/long-links.md)."""


def judge_cluster(
    answers: ClusterAnswers, *, requests: Mapping[int, tuple[str, tuple[int, int]]], now_ms: int
) -> list[CheckResult]:
    """Return the results about one cluster that do not depend on a flow.

    Args:
        requests: the requests that mm2py sends, by API key: its name, and the versions of which one must be spoken.
        now_ms: the wall clock of this machine.
    """
    found = [
        *_addresses(answers),
        *_logins(answers, now_ms),
        *([] if answers.away else _versions(answers, requests)),
    ]
    if answers.away and answers.away.obstacle is Obstacle.VERSION:
        found.append(_failed("MM0302", answers.subject, answers.away))
    if answers.away:
        told = {one.code for one in found}
        found += [
            unknown(code, answers.subject, f"{answers.subject} does not answer", waits_for=answers.subject)
            for code in OF_CLUSTERS
            if code not in told
        ]
    return found


def is_reached(away: Unanswered | None) -> bool:
    """Return whether something answers at the address, even if TLS or the login fail."""
    return away is None or away.obstacle in {Obstacle.TLS, Obstacle.LOGIN, Obstacle.VERSION}


def _failed(code: str, subject: str, why: Unanswered) -> CheckResult:
    return CheckResult(code, CheckState.FAILED, subject, why.what, why.remedy)


def _addresses(answers: ClusterAnswers) -> Iterable[CheckResult]:
    subject, away = answers.subject, answers.away
    if not is_reached(away) and away is not None:
        if away.obstacle is Obstacle.FOREIGN:
            yield _failed("MM0103", subject, away)
        else:
            text = f"{subject} does not answer: {away.what}"
            yield CheckResult("MM0101", CheckState.FAILED, subject, text, away.remedy)
        return
    there = [one.address for one in answers.bootstrap if one.unanswered is None]
    if away is not None:
        yield ok("MM0101", subject, f"{subject} accepts connections at {answers.first_address}")
        return
    software = " and ".join(sorted({_software(one) for one in answers.brokers if _software(one)}))
    about = [_brokers(len(answers.brokers)), *([f"Kafka {software}"] if software else [])]
    yield ok("MM0101", subject, f"{subject} answers at {there[0]} ({', '.join(about)})")
    dead = [one for one in answers.bootstrap if one.unanswered is not None]
    if dead:
        names = [one.address for one in dead]
        first = dead[0].unanswered
        yield CheckResult(
            "MM0102",
            CheckState.WARNING,
            subject,
            f"{len(dead)} of {len(answers.bootstrap)} addresses of {subject} do not answer: {', '.join(names[:3])}"
            + (f" and {len(names) - 3} more" if len(names) > 3 else ""),
            f"{first.what if first else ''} Start these brokers, or remove them from"
            f" {answers.alias}.bootstrap.servers.".strip(),
            tuple(names),
        )
    elif len(answers.bootstrap) > 1:
        yield ok("MM0102", subject, f"All {len(answers.bootstrap)} addresses of {subject} answer")
    if len(answers.bootstrap) > 1:
        which = " that answer" if dead else ""
        yield ok("MM0103", subject, f"All addresses{which} lead to one cluster, {answers.cluster_id}")
    away_brokers = [one for one in answers.brokers if one.unanswered is not None]
    for one in away_brokers[:1]:
        assert one.unanswered is not None  # noqa: S101
        names = [f"{one.broker} at {one.address}" for one in away_brokers]
        yield CheckResult(
            "MM0104",
            CheckState.FAILED,
            subject,
            f"{subject} advertises an address at which mm2py cannot reach {counted('broker', names)}",
            f"{one.unanswered.what} Correct its advertised.listeners, or the network between this machine and it.",
            tuple(names),
        )
    if not away_brokers and answers.brokers:
        yield ok("MM0104", subject, f"Each broker of {subject} can be reached at the address that it advertises")


def _brokers(count: int) -> str:
    return f"{count} broker{'' if count == 1 else 's'}"


def _logins(answers: ClusterAnswers, now_ms: int) -> Iterable[CheckResult]:
    subject, away, security = answers.subject, answers.away, answers.security
    if not is_reached(away):
        return
    obstacle = None if away is None else away.obstacle
    if away is not None and obstacle is Obstacle.TLS:
        yield _failed("MM0201", subject, away)
    elif security.tls is not None:
        checked = "" if security.tls.check_host_names else "; its host name is not checked, as the file says"
        yield (
            ok("MM0201", subject, f"{subject} is reached over TLS{checked}")
            if not checked
            else CheckResult(
                "MM0201",
                CheckState.WARNING,
                subject,
                f"{subject} is reached over TLS{checked}",
                f"Remove the empty {answers.alias}.ssl.endpoint.identification.algorithm.",
            )
        )
    elif security.sasl is not None:
        password = " and the password" if security.sasl.mechanism == "PLAIN" else ""
        yield CheckResult(
            "MM0201",
            CheckState.WARNING,
            subject,
            f"mm2py logs in to {subject} without TLS: everybody on the network can read the records{password}",
            f"Set {answers.alias}.security.protocol = SASL_SSL.",
        )
    else:
        yield ok("MM0201", subject, f"{subject} is reached in plain text, as the file says")
    if obstacle in {Obstacle.TLS, Obstacle.VERSION}:
        if security.sasl is not None:
            yield unknown("MM0202", subject, f"The login to {subject} was not tried, because the connection failed")
    elif away is not None and obstacle is Obstacle.LOGIN:
        yield _failed("MM0202", subject, away)
    elif security.sasl is not None:
        credential = security.sasl.credential
        user = "the token"
        if isinstance(credential, PasswordCredential):
            user = credential.username
        elif isinstance(credential, KerberosCredential):
            user = credential.principal or "the ticket"
        yield ok("MM0202", subject, f"{subject} accepts the login of {user} ({security.sasl.mechanism})")
    else:
        yield ok("MM0202", subject, f"{subject} asks for no login")
    if answers.certificate_ends_ms is not None:
        yield _certificate(answers, answers.certificate_ends_ms - now_ms)


def _certificate(answers: ClusterAnswers, left_ms: int) -> CheckResult:
    days = left_ms // DAY_MS
    if left_ms > CERTIFICATE_LASTS_MS:
        return ok("MM0203", answers.subject, f"Our certificate for {answers.subject} is valid for {days} days")
    return CheckResult(
        "MM0203",
        CheckState.WARNING if left_ms > 0 else CheckState.FAILED,
        answers.subject,
        f"Our certificate for {answers.subject} expires in {days} days"
        if left_ms > 0
        else f"Our certificate for {answers.subject} has expired",
        f"Replace {answers.alias}.ssl.keystore. A running worker reads the file again.",
    )


def _software(one: BrokerAnswer) -> str:
    """Return Kafka's version of a broker; empty if it is not known."""
    if one.metadata_version is None:
        return BEFORE_OLDEST if _is_before_oldest(one) else ""
    if one.metadata_version > LAST_SUPPORTED:
        return f"newer than {NEWEST}"
    return [version for version, first in _FIRST_LEVELS.items() if first <= one.metadata_version][-1]


def _is_before_oldest(one: BrokerAnswer) -> bool:
    if one.metadata_version is not None:
        return one.metadata_version < FIRST_SUPPORTED
    key, version = SINCE_OLDEST
    return one.versions.get(key, (0, -1))[1] < version


def _versions(answers: ClusterAnswers, requests: Mapping[int, tuple[str, tuple[int, int]]]) -> Iterable[CheckResult]:
    subject = answers.subject
    told = [one for one in answers.brokers if one.versions]
    if not told:
        return
    by_version: dict[str, list[str]] = {}
    for one in told:
        by_version.setdefault(_software(one), []).append(str(one.broker))
    levels = {one.metadata_version for one in told}
    listed = "; ".join(
        f"{version or 'unknown'}: {counted('broker', ids)}" for version, ids in sorted(by_version.items())
    )
    if any(map(_is_before_oldest, told)):
        yield CheckResult(
            "MM0301",
            CheckState.FAILED,
            subject,
            f"{subject} has brokers before {OLDEST}: {listed}",
            "Upgrade these brokers.",
        )
    elif any(level is not None and level > LAST_SUPPORTED for level in levels):
        yield CheckResult(
            "MM0301",
            CheckState.WARNING,
            subject,
            f"{subject} has brokers newer than {NEWEST}, with which mm2py was not tested: {listed}",
            "Look for a newer mm2py.",
        )
    elif None in levels:
        yield unknown("MM0301", subject, f"Not all brokers of {subject} tell their version: {listed}")
    elif len(by_version) > 1:
        yield CheckResult(
            "MM0301",
            CheckState.WARNING,
            subject,
            f"The brokers of {subject} have different versions: {listed}",
            "Finish the upgrade of the cluster.",
        )
    else:
        yield ok("MM0301", subject, f"All brokers of {subject} run Kafka {listed.partition(':')[0]}")
    lacking: dict[str, list[str]] = {}
    for one in told:
        for key, (name, (low, high)) in requests.items():
            least, most = one.versions.get(key, (0, -1))
            if most < low or least > high:
                lacking.setdefault(f"{name} {low if low == high else f'{low} to {high}'}", []).append(str(one.broker))
    if lacking:
        yield CheckResult(
            "MM0302",
            CheckState.FAILED,
            subject,
            f"Brokers of {subject} do not speak "
            + "; ".join(f"{name} ({counted('broker', ids)})" for name, ids in sorted(lacking.items())[:3])
            + (f" and {len(lacking) - 3} more requests" if len(lacking) > 3 else ""),
            f"mm2py works with brokers from {OLDEST} to {NEWEST}."
            " Let what is between mm2py and the brokers pass these requests.",
            tuple(sorted(lacking)),
        )
    else:
        yield ok("MM0302", subject, f"All brokers of {subject} speak the {len(requests)} requests that mm2py sends")


def judge_link(answers: ClusterAnswers, *, reads: bool, writes: bool, connections_most: int) -> Iterable[CheckResult]:
    """Return the results about the way to one cluster.

    Args:
        reads: a flow reads from it.
        writes: a flow writes to it.
        connections_most: ``connections.per.broker.max``.
    """
    subject = answers.subject
    known = {one.broker: one.round_trip_s for one in answers.brokers if one.round_trip_s is not None}
    if answers.away or not known:
        return
    farthest = max(known.values())
    about = f"A round trip to the brokers of {subject} takes {_time(farthest)}" + (" at most" if len(known) > 1 else "")
    if farthest < FAR_S:
        yield ok("MM0901", subject, about)
        return
    yield CheckResult(
        "MM0901",
        CheckState.WARNING if writes else CheckState.OK,
        subject,
        f"{about}: it is far",
        f"Run the workers beside {subject}, or expect that a topic of few partitions is slower." if writes else "",
    )
    for is_used, setting in ((reads, "socket.send.buffer.bytes"), (writes, "socket.receive.buffer.bytes")):
        if is_used:
            yield _buffer(answers, setting, farthest, connections_most)


def _buffer(answers: ClusterAnswers, setting: str, round_trip_s: float, connections_most: int) -> CheckResult:
    subject, value = answers.subject, answers.broker_settings.get(setting)
    if value is None:
        why = answers.settings_unread.what if answers.settings_unread is not None else f"{subject} has no such setting."
        return unknown("MM0902", subject, f"{setting} of {subject} is not known. {why}")
    if value == TUNED:
        return ok("MM0902", subject, f"{setting} of {subject} is -1: the kernel tunes each connection")
    one_mb_s = UNDER_WAY * int(value) / round_trip_s / 1e6
    return CheckResult(
        "MM0902",
        CheckState.WARNING,
        subject,
        f"{setting} of {subject} is {int(value):,}: one connection carries {one_mb_s:.1f} MB/s, and the"
        f" {connections_most} that mm2py opens at most {one_mb_s * connections_most:.0f} MB/s",
        f"Set {setting}=-1 on the brokers of {subject}, and restart them.",
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
