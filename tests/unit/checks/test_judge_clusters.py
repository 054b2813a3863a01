"""What the answers of one cluster mean: addresses, TLS, logins, versions, and the way to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mm2py.checks.facts import BootstrapAnswer, ClusterAnswers, Obstacle, Unanswered
from mm2py.checks.judge_clusters import CERTIFICATE_LASTS_MS, judge_cluster, judge_link
from mm2py.checks.questions import REQUESTS
from mm2py.checks.results import CheckResult, CheckState
from mm2py.kafka.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    KeyMaterialUnusable,
    TlsFailed,
    UnsupportedVersion,
)
from mm2py.kafka.security.settings import PasswordCredential, SaslSettings, Security, TlsSettings
from mm2py.secret import Secret
from tests.fakes.check_answers import NOW_MS, VERSIONS, broker, cluster

OK, WARNING, FAILED, UNKNOWN = CheckState.OK, CheckState.WARNING, CheckState.FAILED, CheckState.UNKNOWN
DEAD = Unanswered.of(BrokerUnreachable("a2:9092", "Connection refused"))
SASL = SaslSettings("PLAIN", PasswordCredential("mirror", Secret("canary")))


def judged(answers: ClusterAnswers) -> dict[str, CheckResult]:
    results = judge_cluster(answers, requests=REQUESTS, now_ms=NOW_MS)
    found = {one.code: one for one in results}
    assert len(found) == len(results), "one line for each check of a cluster"
    return found


def away(error: Exception, **changes: Any) -> ClusterAnswers:
    unanswered = Unanswered.of(error)  # type: ignore[arg-type]
    return cluster(bootstrap=(BootstrapAnswer("a1:9092", unanswered=unanswered),), brokers=(), **changes)


@pytest.mark.parametrize(
    ("code", "state", "answers", "text"),
    [
        ("MM0101", OK, cluster(), "A answers at a1:9092 (1 broker, Kafka 4.3)"),
        (
            "MM0101",
            FAILED,
            away(BrokerUnreachable("a1:9092", "Connection refused")),
            "A does not answer: a1:9092 cannot",
        ),
        ("MM0101", OK, away(TlsFailed("A", "a1:9092", "no", remedy="Renew it.")), "A accepts connections at a1:9092"),
        ("MM0102", OK, cluster(bootstrap=(BootstrapAnswer("a1:1", "id"), BootstrapAnswer("a2:1", "id"))), "All 2 add"),
        (
            "MM0102",
            WARNING,
            cluster(bootstrap=(BootstrapAnswer("a1:1", "id"), BootstrapAnswer("a2:1", unanswered=DEAD))),
            "1 of 2 addresses of A do not answer: a2:1",
        ),
        (
            "MM0103",
            OK,
            cluster(bootstrap=(BootstrapAnswer("a1:1", "id"), BootstrapAnswer("a2:1", "id"))),
            "All addresses lead to one cluster, id-A",
        ),
        (
            "MM0103",
            OK,
            cluster(bootstrap=(BootstrapAnswer("a1:1", "id"), BootstrapAnswer("a2:1", unanswered=DEAD))),
            "All addresses that answer lead to one cluster, id-A",
        ),
        (
            "MM0103",
            FAILED,
            cluster(bootstrap=(BootstrapAnswer("a1:1", "x", Unanswered("Two: x, y.", "Name one.", Obstacle.FOREIGN)),)),
            "Two: x, y.",
        ),
        ("MM0104", OK, cluster(), "Each broker of A can be reached"),
        (
            "MM0104",
            FAILED,
            cluster(brokers=(broker(1), broker(2, unanswered=DEAD, versions={}))),
            "A advertises an address at which mm2py cannot reach broker 2 at a2:9092",
        ),
        ("MM0201", OK, cluster(), "A is reached in plain text"),
        ("MM0201", OK, cluster(security=Security("SSL", TlsSettings())), "A is reached over TLS"),
        (
            "MM0201",
            WARNING,
            cluster(security=Security("SSL", TlsSettings(check_host_names=False))),
            "its host name is not checked",
        ),
        ("MM0201", WARNING, cluster(security=Security("SASL_PLAINTEXT", None, SASL)), "records and the password"),
        ("MM0201", FAILED, away(TlsFailed("A", "a1:9092", "a stranger", remedy="Renew it.")), "No TLS connection"),
        ("MM0201", FAILED, away(KeyMaterialUnusable("ca.pem", "no file", remedy="Put it there.")), "ca.pem cannot"),
        ("MM0202", OK, cluster(), "A asks for no login"),
        (
            "MM0202",
            OK,
            cluster(security=Security("SASL_PLAINTEXT", None, SASL)),
            "A accepts the login of mirror (PLAIN)",
        ),
        (
            "MM0202",
            FAILED,
            away(AuthenticationFailed("A", "a1:9092", "PLAIN", "wrong", remedy="Check it.")),
            "a1:9092 of A did not authenticate mm2py by PLAIN: wrong.",
        ),
        (
            "MM0202",
            UNKNOWN,
            away(
                TlsFailed("A", "a1:9092", "a stranger", remedy="Renew it."),
                security=Security("SASL_SSL", TlsSettings(), SASL),
            ),
            "was not tried",
        ),
        ("MM0203", OK, cluster(certificate_ends_ms=NOW_MS + CERTIFICATE_LASTS_MS + 1), "valid for 30 days"),
        ("MM0203", WARNING, cluster(certificate_ends_ms=NOW_MS + CERTIFICATE_LASTS_MS), "expires in 30 days"),
        ("MM0203", FAILED, cluster(certificate_ends_ms=NOW_MS), "has expired"),
        ("MM0301", OK, cluster(), "All brokers of A run Kafka 4.3"),
        ("MM0301", OK, cluster(brokers=(broker(metadata_version=4),)), "All brokers of A run Kafka 3.3"),
        ("MM0301", FAILED, cluster(brokers=(broker(metadata_version=3),)), "before 3.3: 3.2: broker 1"),
        (
            "MM0301",
            FAILED,
            cluster(brokers=(broker(1), broker(2, metadata_version=None, versions={**VERSIONS, 35: (0, 3)}))),
            "A has brokers before 3.3: 4.3: broker 1; before 3.3: broker 2",
        ),
        ("MM0301", OK, cluster(brokers=(broker(metadata_version=33),)), "All brokers of A run Kafka 4.4"),
        ("MM0301", WARNING, cluster(brokers=(broker(metadata_version=34),)), "newer than 4.4"),
        (
            "MM0301",
            WARNING,
            cluster(brokers=(broker(1, metadata_version=27), broker(2))),
            "different versions: 4.1: broker 1; 4.3: broker 2",
        ),
        (
            "MM0301",
            UNKNOWN,
            cluster(brokers=(broker(metadata_version=None),)),
            "Not all brokers of A tell their version",
        ),
        ("MM0302", OK, cluster(), f"the {len(REQUESTS)} requests"),
        (
            "MM0302",
            FAILED,
            cluster(brokers=(broker(versions={**VERSIONS, 1: (0, 11)}),)),
            "do not speak Fetch 12 to 17 (broker 1)",
        ),
    ],
)
def test_a_cluster(code: str, state: CheckState, answers: ClusterAnswers, text: str) -> None:
    found = judged(answers)[code]
    assert (found.state, text in found.sentence) == (state, True), found
    assert bool(found.hint) is (state in {WARNING, FAILED}), found


def test_a_broker_that_shares_no_version_with_us_fails_as_a_version() -> None:
    old = UnsupportedVersion("a1:9092", "ApiVersions", wanted="3", offered="older ones only")
    found = judged(away(old, security=Security("SASL_PLAINTEXT", None, SASL)))
    assert (found["MM0302"].state, found["MM0101"].state, found["MM0202"].state) == (FAILED, OK, UNKNOWN)
    assert "mm2py works with brokers from 3.3 to 4.4." in found["MM0302"].hint


def test_what_depends_on_a_cluster_that_does_not_answer_is_not_checkable() -> None:
    found = judged(away(BrokerUnreachable("a1:9092", "Connection refused")))
    others = [one for code, one in found.items() if code != "MM0101"]
    assert {one.state for one in others} == {UNKNOWN}
    assert {one.waits_for for one in others} == {"A"}
    assert {"MM0102", "MM0201", "MM0202", "MM0302", "MM0901"} <= found.keys()


def test_a_hint_does_not_promise_that_a_check_keeps_trying() -> None:
    wrong = AuthenticationFailed("A", "a1:9092", "PLAIN", "wrong", remedy="Check user name and password.")
    assert judged(away(wrong))["MM0202"].hint == "Check user name and password."
    assert judged(away(BrokerUnreachable("a1:9092", "no")))["MM0101"].hint == "Check address, port and network."


@pytest.mark.parametrize(
    ("round_trip_s", "settings", "expected", "text"),
    [
        (0.0004, {}, {"MM0901": OK}, "takes 0.4 ms"),
        (0.1, {"socket.send.buffer.bytes": "-1"}, {"MM0901": OK, "MM0902": OK}, "the kernel tunes each connection"),
        (0.1, {}, {"MM0901": OK, "MM0902": WARNING}, "one connection carries 1.8 MB/s, and the 64 that mm2py"),
        (0.1, {"socket.send.buffer.bytes": None}, {"MM0901": OK, "MM0902": UNKNOWN}, "is not known"),
    ],
)
def test_the_way_to_a_source(
    round_trip_s: float, settings: dict[str, str | None], expected: dict[str, CheckState], text: str
) -> None:
    answers = cluster(brokers=(broker(round_trip_s=round_trip_s),))
    answers = replace(answers, broker_settings={**answers.broker_settings, **settings})
    found = list(judge_link(answers, reads=True, writes=False, connections_most=64))
    assert {one.code: one.state for one in found} == expected
    assert text in found[-1].sentence


def test_a_far_target_is_a_warning_and_its_receive_buffer_counts() -> None:
    answers = cluster("B", brokers=(broker(round_trip_s=0.1),))
    far, buffer = judge_link(answers, reads=False, writes=True, connections_most=64)
    assert (far.code, far.state) == ("MM0901", WARNING)
    assert "Run the workers beside B" in far.hint
    assert buffer.state is WARNING
    assert "socket.receive.buffer.bytes of B is 102,400" in buffer.sentence
