"""The name that kafka-acls needs, as far as a file tells it; and when our certificate ends."""

from __future__ import annotations

from pathlib import Path

from deploy.local.certificates import Authority, write_private
from mm2py.checks.principal import principal_of
from mm2py.checks.rights import PLACEHOLDER
from mm2py.kafka.security.settings import (
    PLAINTEXT,
    KeyStore,
    PasswordCredential,
    SaslSettings,
    Security,
    TlsSettings,
    TokenFile,
)
from mm2py.secret import Secret
from tests.fakes.check_answers import configuration, wanted


def test_a_user_with_a_password_is_named_as_it_logs_in() -> None:
    sasl = SaslSettings("PLAIN", PasswordCredential("mirror", Secret("canary")))
    assert principal_of(Security("SASL_PLAINTEXT", None, sasl)) == ("User:mirror", None)


def test_what_a_token_says_is_not_known() -> None:
    sasl = SaslSettings("OAUTHBEARER", TokenFile(Path("token")))
    assert principal_of(Security("SASL_SSL", TlsSettings(), sasl)) == (PLACEHOLDER, None)


def test_without_login_and_certificate_a_user_is_anonymous() -> None:
    assert principal_of(PLAINTEXT) == ("User:ANONYMOUS", None)
    assert principal_of(Security("SSL", TlsSettings())) == ("User:ANONYMOUS", None)


def test_a_certificate_names_its_subject_and_its_end(tmp_path: Path) -> None:
    certified = Authority().issue("client", valid_days=(-1, 9))
    path = write_private(tmp_path / "client.pem", certified.pem())
    security = Security("SSL", TlsSettings(keys=KeyStore("PEM", path)))
    ends_ms = int(certified.certificate.not_valid_after_utc.timestamp() * 1000)
    assert principal_of(security) == ("User:CN=client", ends_ms)


def test_a_certificate_that_cannot_be_read_leaves_the_name_open(tmp_path: Path) -> None:
    security = Security("SSL", TlsSettings(keys=KeyStore("PEM", tmp_path / "missing.pem")))
    assert principal_of(security) == (PLACEHOLDER, None)


def test_heartbeats_on_the_source_need_their_topic_and_a_control_log_there() -> None:
    names = {one.name for one in wanted(configuration()) if one.on_source}
    assert names == {"mm2-offset-syncs.B.internal"}
    names = {one.name for one in wanted(configuration(**{"emit.heartbeats.enabled": True})) if one.on_source}
    assert names == {"mm2-offset-syncs.B.internal", "heartbeats", "mm2-cluster.mm2py.internal"}
