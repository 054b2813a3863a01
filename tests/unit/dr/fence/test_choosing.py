"""Which topics are fenced by themselves, and under which names mm2py must stay free."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.checks.rights import PLACEHOLDER
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.dr.fence.choosing import chosen_topics, named_principals, own_principals, settings_of_flow
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias

A = ClusterAlias("A")
HEAD = """clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
A->B.enabled = true
topics = orders, bills, .*copied, heartbeats
"""
IDENTITY = "replication.policy.class = IdentityReplicationPolicy\n"
THERE = ["orders", "bills", "heartbeats", "C.copied", "other", "__consumer_offsets", "mm2-dr-fences.internal"]


def file(tmp_path: Path, text: str) -> SettingsFile:
    path = tmp_path / "mm2.properties"
    path.write_text(HEAD + text)
    return read_settings_file(path, None)


def login(name: str, where: str) -> str:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{name}" password="canary";'
    return f"{where}.security.protocol = SASL_SSL\n{where}.sasl.mechanism = PLAIN\n{where}.sasl.jaas.config = {jaas}\n"


def test_by_itself_a_fence_takes_what_producers_of_the_source_write_and_the_flow_copies(tmp_path: Path) -> None:
    settings = settings_of_flow(file(tmp_path, ""), "A->B")
    assert chosen_topics(settings, THERE, []) == ("bills", "orders")
    assert chosen_topics(settings, THERE, ["orders"]) == ("orders",)
    same = settings_of_flow(file(tmp_path, IDENTITY), "A->B")
    assert chosen_topics(same, THERE, []) == ("C.copied", "bills", "orders")  # a name of its own there


@pytest.mark.parametrize(
    ("topic", "why"),
    [("nowhere", "A has no topic nowhere"), ("other", "does not copy other"), ("heartbeats", "does not copy heartb"),
     ("C.copied", "does not copy C.copied")],
)  # fmt: skip
def test_another_topic_is_refused_by_name(tmp_path: Path, topic: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace(".", r"\.")):
        chosen_topics(settings_of_flow(file(tmp_path, ""), "A->B"), THERE, [topic])


def test_no_topic_is_no_fence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="copies no topic"):
        chosen_topics(settings_of_flow(file(tmp_path, ""), "A->B"), ["other"], [])


def test_mm2py_stays_free_under_the_names_of_every_flow_of_the_file(tmp_path: Path) -> None:
    text = login("reader", "A.consumer") + login("writer", "A.producer") + "B->A.enabled = false\nC->A.enabled = true\n"
    assert own_principals(file(tmp_path, text), A) == {"User:reader", "User:writer"}


def test_a_direction_that_is_refused_as_a_ring_has_a_name_too(tmp_path: Path) -> None:
    found = file(
        tmp_path, IDENTITY + login("reader", "A.consumer") + login("writer", "A.producer") + "B->A.enabled = true\n"
    )
    assert not found.configuration().flows
    assert own_principals(found, A) == {"User:reader", "User:writer"}
    assert settings_of_flow(found, "A->B").flow.source == A


def test_a_name_that_the_file_does_not_tell_must_be_given(tmp_path: Path) -> None:
    kerberos = (
        "A.security.protocol = SASL_SSL\nA.sasl.mechanism = OAUTHBEARER\n"
        "A.sasl.oauthbearer.token.endpoint.url = https://idp.example/token\n"
        "A.sasl.jaas.config = org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' clientId="mm2py" clientSecret="canary";\n'
    )
    found = file(tmp_path, kerberos)
    assert PLACEHOLDER in own_principals(found, A)
    assert own_principals(found, A, ["User:mirror"]) == {"User:mirror"}


def test_a_principal_has_its_type_in_front() -> None:
    assert named_principals(["User:a", "User:CN=x:y", "User:a"]) == ("User:a", "User:CN=x:y")
    for text in ("app", ":app", "User:"):
        with pytest.raises(ConfigError, match="is no principal"):
            named_principals([text])
