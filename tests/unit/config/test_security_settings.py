"""``security.protocol``, ``ssl.*`` and ``sasl.*``: what they come to for each side, and what refuses a flow."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.certificates import Authority
from mm2py.config import layers, tables
from mm2py.config.configuration import load_configuration
from mm2py.config.row import Status
from mm2py.config.security.keys import SECURITY
from mm2py.config.settings import Configuration
from mm2py.errors import ConfigError
from mm2py.flow import parse_flow
from mm2py.kafka.security.settings import (
    KeyStore,
    PasswordCredential,
    SaslSettings,
    Security,
    TlsSettings,
    TokenEndpoint,
    TokenFile,
    TrustStore,
)
from mm2py.secret import Secret

TWO = {"clusters": "A,B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1", "A->B.enabled": "true"}
SECURITY_PACKAGE = "org.apache.kafka.common.security"
PLAIN = f'{SECURITY_PACKAGE}.plain.PlainLoginModule required username="anna" password="canary-pw";'
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")
OAUTH = f"{SECURITY_PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
Load = Callable[[dict[str, str]], Configuration]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(settings: dict[str, str]) -> Configuration:
        path = tmp_path / "mm2.properties"
        path.write_text(render_properties({**TWO, **settings}))
        configuration = load_configuration(path, None)
        assert "canary" not in repr(configuration)
        assert "canary" not in str([*configuration.warnings, *map(str, configuration.refused.values())])
        return configuration

    return load


def source(configuration: Configuration) -> Security:
    assert configuration.refused == {}
    return next(flow for flow in configuration.flows if str(flow.flow) == "A->B").source.security


def reason(configuration: Configuration) -> str:
    return str(configuration.refused[parse_flow("A->B")])


# -- what they come to ------------------------------------------------------------------------------------------------


def test_tls_has_kafkas_defaults(load: Load) -> None:
    assert source(load({"A.security.protocol": "ssl"})) == Security("SSL", tls=TlsSettings())


def test_every_tls_setting_counts(load: Load) -> None:
    assert source(
        load(
            {
                "A.security.protocol": "SSL",
                "A.ssl.truststore.location": "/t",
                "A.ssl.truststore.password": "canary-t",
                "A.ssl.keystore.type": "pkcs12",
                "A.ssl.keystore.location": "/k",
                "A.ssl.keystore.password": "canary-k",
                "A.ssl.key.password": "canary-k",
                "A.ssl.enabled.protocols": "TLSv1.2",
                "A.ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
                "A.ssl.endpoint.identification.algorithm": "HTTPS",
            }
        )
    ) == Security(
        "SSL",
        tls=TlsSettings(
            TrustStore("JKS", Path("/t"), Secret("canary-t")),
            KeyStore("PKCS12", Path("/k"), Secret("canary-k"), key_password=Secret("canary-k")),
            versions=("TLSv1.2",),
            ciphers=("ECDHE-RSA-AES256-GCM-SHA384",),
        ),
    )


def test_pem_may_stand_in_the_file_itself(load: Load) -> None:
    authority = Authority()
    client = authority.issue("client")
    tls = source(
        load(
            {
                "A.security.protocol": "SSL",
                "A.ssl.truststore.type": "PEM",
                "A.ssl.truststore.certificates": authority.pem().decode(),
                "A.ssl.keystore.type": "PEM",
                "A.ssl.keystore.certificate.chain": client.certificate_pem().decode(),
                "A.ssl.keystore.key": client.key_pem("canary").decode(),
                "A.ssl.key.password": "canary",
            }
        )
    ).tls
    assert tls is not None and tls.trust is not None and tls.keys is not None
    assert tls.trust.certificates == Secret(authority.pem().decode().strip())
    assert tls.keys.key_password == Secret("canary")


@pytest.mark.parametrize(("mechanism", "text"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)])
def test_name_and_password_come_from_the_login_module(load: Load, mechanism: str, text: str) -> None:
    settings = {"A.security.protocol": "SASL_SSL", "A.sasl.mechanism": mechanism, "A.sasl.jaas.config": text}
    sasl = source(load(settings)).sasl
    assert sasl == SaslSettings(mechanism, PasswordCredential("anna", Secret("canary-pw")))  # type: ignore[arg-type]


BEARER = {"A.security.protocol": "SASL_SSL", "A.sasl.mechanism": "OAUTHBEARER"}
URL = "A.sasl.oauthbearer.token.endpoint.url"
CLIENT = {
    "A.sasl.oauthbearer.client.credentials.client.id": "new",
    "A.sasl.oauthbearer.client.credentials.client.secret": "canary-new",
}


def test_client_credentials_come_from_settings_before_the_login_module(load: Load) -> None:
    old = (
        f'{OAUTH} clientId="old" clientSecret="canary-old" scope="s1" extension_pool="p" ssl.truststore.location="/x";'
    )
    base = {**BEARER, URL: "https://t.example/token", "A.sasl.jaas.config": old}
    expected = TokenEndpoint(
        "https://t.example/token",
        "old",
        Secret("canary-old"),
        "s1",
        tls=TlsSettings(TrustStore("JKS", Path("/x"))),
        extensions=(("pool", "p"),),
    )
    sasl = source(load(base)).sasl
    assert sasl is not None and sasl.credential == expected
    newer = source(load({**base, **CLIENT, "A.sasl.oauthbearer.scope": "s2"})).sasl
    assert newer is not None and isinstance(newer.credential, TokenEndpoint)
    assert (newer.credential.client_id, newer.credential.scope) == ("new", "s2")
    assert newer.credential.client_secret == Secret("canary-new")
    alone = source(load({**BEARER, **CLIENT, URL: "https://t.example/"})).sasl
    assert alone is not None and isinstance(alone.credential, TokenEndpoint)


def test_a_file_may_hold_the_token(load: Load) -> None:
    for url in ("file:///var/tok%20en", "file:/var/tok%20en", "file://localhost/var/tok%20en"):
        sasl = source(load({**BEARER, URL: url})).sasl
        assert sasl == SaslSettings("OAUTHBEARER", TokenFile(Path("/var/tok en")))


def test_each_side_of_each_flow_has_its_own_security_by_mirror_makers_precedence(load: Load) -> None:
    """A cluster is the source of one flow and the target of another, with other settings in each role and flow."""
    configuration = load(
        {
            "clusters": "A,B,C",
            "C.bootstrap.servers": "c:1",
            "B->A.enabled": "true",
            "C->A.enabled": "true",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": PLAIN.replace("anna", "top"),
            "A.sasl.jaas.config": PLAIN.replace("anna", "cluster"),
            "A.producer.sasl.jaas.config": PLAIN.replace("anna", "producer"),
            "B.security.protocol": "SSL",
            "C->A.producer.override.sasl.jaas.config": PLAIN.replace("anna", "override"),
            "A->B.source.consumer.sasl.jaas.config": PLAIN.replace("anna", "flow"),
        }
    )

    def seen(security: Security) -> str:
        credential = security.sasl.credential if security.sasl is not None else None
        return credential.username if isinstance(credential, PasswordCredential) else security.protocol

    assert {
        str(flow.flow): (seen(flow.source.security), seen(flow.target.security)) for flow in configuration.flows
    } == {
        "A->B": ("flow", "SSL"),
        "B->A": ("SSL", "producer"),
        "C->A": ("top", "override"),
    }


# -- refusals ---------------------------------------------------------------------------------------------------------

SSL = {"A.security.protocol": "SSL"}
SASL = {"A.security.protocol": "SASL_SSL", "A.sasl.mechanism": "PLAIN", "A.sasl.jaas.config": PLAIN}
SCRAM_256 = {**SASL, "A.sasl.mechanism": "SCRAM-SHA-256", "A.sasl.jaas.config": SCRAM}

REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "no protocol": ({"A.ssl.truststore.location": "/x"}, "asks for security, and security.protocol is not set"),
    "Kerberos with another module": (
        {**SASL, "A.sasl.mechanism": "GSSAPI"}, "has PlainLoginModule, and sasl.mechanism is GSSAPI",
    ),
    "Kerberos by default": ({"A.security.protocol": "SASL_SSL"}, "sasl.mechanism is not set: its default is GSSAPI"),
    "unknown mechanism": ({**SASL, "A.sasl.mechanism": "canary"}, "A.sasl.mechanism (line 6) is none that mm2py has"),
    "lower case": ({**SASL, "A.sasl.mechanism": "plain"}, "is none that mm2py has"),
    "no login": ({**SASL, "A.sasl.jaas.config": ""}, "sasl.jaas.config is not set"),
    "other module": ({**SASL, "A.sasl.jaas.config": SCRAM}, "has ScramLoginModule, and sasl.mechanism is PLAIN"),
    "hostile module": (
        {**SASL, "A.sasl.jaas.config": 'com.sun.security.auth.module.JndiLoginModule required x="canary";'},
        "JndiLoginModule",
    ),
    "no password": (
        {**SASL, "A.sasl.jaas.config": PLAIN.replace('password="canary-pw"', "")}, "has no password",
    ),
    "broker's option": (
        {**SASL, "A.sasl.jaas.config": PLAIN.replace("required", 'required user_a="canary"')},
        "options that do nothing here: user_... (number 1)",
    ),
    "delegation token": (
        {**SCRAM_256, "A.sasl.jaas.config": SCRAM.replace("required", 'required tokenauth="true"')},
        "delegation tokens",
    ),
    "callback handler": ({**SASL, "A.sasl.login.callback.handler.class": "com.example.X"}, "does not run Java classes"),
    "client callbacks": ({**SASL, "A.sasl.client.callback.handler.class": "com.example.X"}, "does not run Java"),
    "login class": ({**SASL, "A.sasl.login.class": "os.system"}, "A.sasl.login.class (line 8) does not work yet"),
    "engine": ({**SSL, "A.ssl.engine.factory.class": "com.example.X"}, "does not run Java classes"),
    "provider": ({**SSL, "A.ssl.provider": "BC"}, "A.ssl.provider (line 6) does not work yet"),
    "retriever": ({**BEARER, "A.sasl.oauthbearer.jwt.retriever.class": "x.Y"}, "does not run Java classes"),
    "no token server": (BEARER, "token.endpoint.url is not set"),
    "unsecured token": (
        {**BEARER, "A.sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="canary";'}, "unsecured tokens",
    ),
    "http": ({**BEARER, **CLIENT, URL: "http://t.example/"}, "would show the client's secret"),
    "http on loopback": ({**BEARER, **CLIENT, URL: "http://127.0.0.1/"}, "would show the client's secret"),
    "ftp": ({**BEARER, **CLIENT, URL: "ftp://t.example/"}, "is no address of a token server"),
    "user in url": ({**BEARER, **CLIENT, URL: "https://u:canary@t.example/"}, "is no address of a token server"),
    "fragment": ({**BEARER, **CLIENT, URL: "https://t.example/#x"}, "is no address of a token server"),
    "no host": ({**BEARER, **CLIENT, URL: "https:///x"}, "is no address of a token server"),
    "bad port": ({**BEARER, **CLIENT, URL: "https://h:99999/"}, "is no address of a token server"),
    "remote file": ({**BEARER, URL: "file://server/x"}, "is no name of a file"),
    "no secret": ({**BEARER, URL: "https://t.example/"}, "client.credentials.client.id is not set"),
    "endpoint's host check": (
        {**BEARER, **CLIENT, URL: "https://t/", "A.sasl.jaas.config":
         f'{OAUTH} ssl.endpoint.identification.algorithm="";'}, "always compared with its certificate",
    ),
    "endpoint's TLS": (
        {**BEARER, **CLIENT, URL: "https://t/", "A.sasl.jaas.config": f'{OAUTH} ssl.enabled.protocols="TLSv1";'},
        "older than TLSv1.2",
    ),
    "password without quotes": (
        {**SASL, "A.sasl.jaas.config": PLAIN.replace('"canary-pw"', "hunter canary")},
        "no value for its option number 3",
    ),
    "quote in a password": (
        {**SASL, "A.sasl.jaas.config": PLAIN.replace('"canary-pw"', '"abc"canary=ghi')}, "do nothing here: number 3",
    ),
    "unknown option": (
        {**BEARER, **CLIENT, URL: "https://t/", "A.sasl.jaas.config": f'{OAUTH} scope="x" ssl.canary="x" canary="x";'},
        "options that do nothing here: number 2, number 3",
    ),
    "unprintable extension": (
        {**BEARER, **CLIENT, URL: "https://t/", "A.sasl.jaas.config": f'{OAUTH} extension_canary="\1";'},
        "option extension_... (number 1) has a value that no extension may have",
    ),
    "empty label": ({**BEARER, **CLIENT, URL: "https://a..b/x"}, "is no address of a token server"),
    "long label": ({**BEARER, **CLIENT, URL: f"https://{'a' * 64}.example/x"}, "is no address of a token server"),
    "path beyond ASCII": ({**BEARER, **CLIENT, URL: "https://t.example/tök"}, "(write it as %XX)"),
    "query beyond ASCII": ({**BEARER, **CLIENT, URL: "https://t.example/?q=ö"}, "(write it as %XX)"),
    "NUL in a file's name": ({**BEARER, URL: "file:///a%00b"}, "is no name of a file"),
    "http for another machine": (
        {**BEARER, **CLIENT, URL: "http://t.example/", "A.sasl.oauthbearer.allow.http": "true"},
        "is http, which A.sasl.oauthbearer.allow.http (line 10) allows on the same machine only (use https)",
    ),
    "endpoint's engine": (
        {**BEARER, **CLIENT, URL: "https://t/", "A.sasl.jaas.config": f'{OAUTH} ssl.engine.factory.class="x";'},
        "options that do nothing here: ssl.engine.factory.class",
    ),
    "forged extension": (
        {**BEARER, **CLIENT, URL: "https://t/", "A.sasl.jaas.config": f'{OAUTH} extension_auth="canary";'},
        "extension_auth is no name of an extension",
    ),
    "store without type": ({**SSL, "A.ssl.truststore.certificates": "canary"}, "ssl.truststore.type is JKS"),
    "two trust stores": (
        {**SSL, "A.ssl.truststore.type": "PEM", "A.ssl.truststore.certificates": "canary",
         "A.ssl.truststore.location": "/x"}, "are both set",
    ),
    "two key stores": (
        {**SSL, "A.ssl.keystore.type": "PEM", "A.ssl.keystore.key": "canary",
         "A.ssl.keystore.certificate.chain": "x", "A.ssl.keystore.location": "/x"}, "are both set",
    ),
    "key alone": ({**SSL, "A.ssl.keystore.type": "PEM", "A.ssl.keystore.key": "canary"}, "needs its counterpart"),
    "PEM with a password": (
        {**SSL, "A.ssl.truststore.type": "PEM", "A.ssl.truststore.location": "/x",
         "A.ssl.truststore.password": "canary"}, "opens nothing",
    ),
    "PEM key with a store's password": (
        {**SSL, "A.ssl.keystore.type": "PEM", "A.ssl.keystore.location": "/x", "A.ssl.keystore.password": "canary"},
        "write ssl.key.password",
    ),
    "password without a store": ({**SSL, "A.ssl.truststore.password": "canary"}, "there is no store"),
    "password without a key": ({**SSL, "A.ssl.key.password": "canary"}, "there is no key"),
    "two passwords": (
        {**SSL, "A.ssl.keystore.location": "/x", "A.ssl.keystore.password": "canary1", "A.ssl.key.password": "canary2"},
        "one password opens both",
    ),
    "weak suite": ({**SSL, "A.ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "unknown or too weak"),
    "some of 1.3": ({**SSL, "A.ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "name all three"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_mm2py_cannot_do_refuses_the_flow_and_no_other(load: Load, name: str) -> None:
    settings, why = REFUSED[name]
    both = {"clusters": "A,B,C", "C.bootstrap.servers": "c:1", "C->B.enabled": "true"}
    configuration = load({**settings, **both})
    assert why in reason(configuration)
    assert [str(flow.flow) for flow in configuration.flows] == ["C->B"]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.1", "older than TLSv1.2"),
        ("ssl.enabled.protocols", "", "not a list out of TLSv1.2, TLSv1.3"),
        ("ssl.protocol", "TLSv1", "not one of TLS, TLSv1.2, TLSv1.3"),
        ("ssl.truststore.type", "BKS", "not one of PEM, PKCS12, JKS"),
        ("ssl.endpoint.identification.algorithm", "none", "not one of https"),
        ("security.protocol", "TLS", "not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("sasl.login.refresh.window.factor", "2", "not a number from 0.5 to 1"),
        ("sasl.login.read.timeout.ms", "0", "not a number from 1"),
        ("sasl.require.tls", "yes", "neither true nor false"),
    ],
)
def test_a_wrong_value_is_told_with_its_line(load: Load, key: str, value: str, why: str) -> None:
    with pytest.raises(ConfigError, match=r"line 5: A\.") as caught:
        load({f"A.{key}": value})
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "A.ssl.keystore.password=x\nA.ssl.keystore.location=/k\nA.ssl.key.password=",
        "A.ssl.truststore.location=/t\nA.ssl.truststore.password=",
        "A.sasl.mechanism=PLAIN\nA.sasl.jaas.config=" + PLAIN.replace("canary-pw", "{}").replace('"{}";', "'{}';"),
        "A.sasl.mechanism=OAUTHBEARER\nA.sasl.oauthbearer.client.credentials.client.secret=",
    ],
)
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_half_a_character_in_a_secret_is_told_with_its_line(tmp_path: Path, text: str, protocol: str) -> None:
    path = tmp_path / "mm2.properties"
    text = text.replace("{}", "canary\\ud801") if "{}" in text else f"{text}canary\\ud801"
    path.write_text(render_properties({**TWO, "A.security.protocol": protocol}) + text + "\n")
    with pytest.raises(ConfigError, match=r"line [78]: A\..* holds half of a character") as caught:
        load_configuration(path, None)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "[::1]", "localhost", "LOCALHOST"])
def test_http_is_allowed_for_a_token_server_on_the_same_machine(load: Load, host: str) -> None:
    http = {**BEARER, **CLIENT, URL: f"http://{host}:1/", "A.sasl.oauthbearer.allow.http": "true"}
    assert source(load(http)).sasl is not None


def test_javas_own_key_stores_are_refused_with_the_way_to_convert_them(load: Load, tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    for kind in ("truststore", "keystore"):
        said = reason(load({**SSL, f"A.ssl.{kind}.location": str(store)}))
        assert f"A.ssl.{kind}.location (line 6) names a file in Java's own old format, JKS" in said
        files = f"-srckeystore {store} -destkeystore {store.with_suffix('.p12')}"
        assert f"keytool -importkeystore {files} -deststoretype PKCS12" in said


@pytest.mark.parametrize("key", ["sasl.require.tls", "A.sasl.require.tls", "A->B.sasl.require.tls"])
def test_sasl_without_tls_is_warned_about_and_refused_where_that_is_set(load: Load, key: str) -> None:
    """S15."""
    plain = {**SASL, "A.security.protocol": "SASL_PLAINTEXT"}
    configuration = load(plain)
    assert source(configuration).tls is None
    assert configuration.warnings == (
        "line 5: A.security.protocol is SASL_PLAINTEXT: anyone who listens on the network sees the records and the"
        " password; use SASL_SSL",
    )
    assert "forbids SASL without TLS" in reason(load({**plain, key: "true"}))
    assert load({**plain, key: "true", "A->B.sasl.require.tls": "false"}).refused == {}
    assert load({**SASL, key: "true"}).refused == {}
    assert load({**plain, "B.sasl.require.tls": "true"}).refused == {}


def test_what_is_less_safe_or_without_effect_is_warned_about(load: Load) -> None:
    http = {**BEARER, **CLIENT, URL: "http://127.0.0.1:1/", "A.sasl.oauthbearer.allow.http": "true"}
    assert "is http: anyone who listens" in load(http).warnings[0]
    blank = load({**SSL, "A.ssl.endpoint.identification.algorithm": ""})
    assert "line 6: A.ssl.endpoint.identification.algorithm is blank: host names are not compared" in blank.warnings[0]
    tls = source(blank).tls
    assert tls is not None and not tls.check_host_names
    (idle,) = load({**SSL, "A.sasl.mechanism": "PLAIN"}).warnings
    assert idle == "line 6: A.sasl.mechanism does nothing, because security.protocol is SSL"
    (idle,) = load({**SASL, URL: "https://t.example/"}).warnings
    assert "because security.protocol is SASL_SSL and sasl.mechanism PLAIN" in idle
    assert load({**SSL, "A.security.protocol": "PLAINTEXT", "A.ssl.key.password": "canary"}).warnings != ()
    assert load({"security.protocol": "SSL", "sasl.mechanism": "PLAIN"}).warnings == ()  # may be meant for others


@pytest.mark.parametrize(
    ("settings", "alias", "role"),
    [
        ({"A.admin.security.protocol": "SSL"}, "A", "consumer"),
        ({"A.admin.sasl.mechanism": "PLAIN"}, "A", "consumer"),
        ({"A->B.target.cluster.security.protocol": "SSL"}, "B", "producer"),
        ({"B.security.protocol": "SSL", "B.producer.security.protocol": "PLAINTEXT"}, "B", "producer"),
    ],
)
def test_settings_of_clients_that_do_not_count_are_named(
    load: Load, settings: dict[str, str], alias: str, role: str
) -> None:
    configuration = load(settings)
    assert configuration.refused == {}
    (warning,) = [text for text in configuration.warnings if "is not used" in text]
    assert f"all connections to {alias} are made with the security of its {role}" in warning


def test_every_name_of_kafkas_clients_has_a_standing() -> None:
    assert {"bootstrap.servers", *SECURITY} == set(layers.CLIENT_NAMES)
    for table in (tables.CONSUMER, tables.PRODUCER, tables.ADMIN, tables.WORKER, tables.CONNECTOR):
        assert set(SECURITY) <= set(table)
    for key in SECURITY.values():
        assert key.status is Status.WORKS or key.note or key.status is Status.NOT_YET, key.name


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_fifty_secrets_are_shown_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S05, S06: settings, refusals, warnings, problems and tracebacks are searched for all of them."""
    authority = Authority()
    secrets = iter(range(1000))
    planted: list[str] = []

    def canary(shape: str = "{}") -> str:
        planted.append(f"canary{next(secrets):03d}x")
        return shape.format(planted[-1])

    shown: list[str] = []
    protocols = ["SSL", "SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT", "bad"]
    stores = ["PEM", "PKCS12", "JKS", "bad"]
    mechanisms = ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"]
    for number in range(20):
        protocol, store = protocols[number % 5], stores[number % 4]
        settings = {
            **TWO,
            "A.security.protocol": protocol,
            "A.ssl.truststore.type": store,
            "A.ssl.truststore.password": canary(),
            "A.ssl.truststore.certificates": canary("-----BEGIN CERTIFICATE-----{}-----END CERTIFICATE-----"),
            "A.ssl.keystore.type": store,
            "A.ssl.keystore.key": canary("-----BEGIN PRIVATE KEY-----{}-----END PRIVATE KEY-----"),
            "A.ssl.key.password": canary(),
            "A.consumer.ssl.keystore.password": canary(),
            "A.sasl.mechanism": mechanisms[number % 3 if number < 15 else 3],
            "A.sasl.jaas.config": canary('{}="') if number % 2 else PLAIN.replace("canary-pw", canary()),
            "B.security.protocol": "SASL_SSL",
            "B.sasl.mechanism": "OAUTHBEARER" if number % 2 else "PLAIN",
            "B.sasl.oauthbearer.token.endpoint.url": "https://t.example/",
            "B.sasl.oauthbearer.client.credentials.client.id": "id",
            "B.sasl.oauthbearer.client.credentials.client.secret": canary(),
            "B.sasl.jaas.config": f'{OAUTH} clientSecret="{canary()}" x="{canary()}";'
            if number % 4 == 3
            else PLAIN.replace("canary-pw", canary()),
        }
        if number % 3 == 0:
            settings["A.ssl.truststore.certificates"] = authority.pem().decode()
        path = tmp_path / "mm2.properties"
        path.write_text(render_properties(settings))
        with caplog.at_level(logging.DEBUG):
            try:
                configuration = load_configuration(path, None)
            except ConfigError as error:
                shown += [str(error), repr(error), traceback.format_exc()]
            else:
                shown += [repr(configuration), *configuration.warnings, *map(str, configuration.refused.values())]
                for flow in configuration.flows:
                    shown.append(json.dumps(asdict(flow.target), default=str))
                    shown.append(f"{flow.target.security} {flow.target.security!r:>5}")
    text = "\n".join([*shown, caplog.text])
    assert len(planted) >= 50
    assert [secret for secret in planted if secret in text] == []
    assert "[hidden]" in text


TORN = "The entry of line 5 has a backslash that continues nothing"
HIDDEN_KEY = "line 6: [a key that is not shown, because it may be part of a secret]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('A.ssl.key.password=\\ \n"Blue4Canary";\n', TORN),
        ("A.ssl.key.password=\\ \nBlue4Canary\n", TORN),
        ("A.ssl.key.password=\\\t\nBlue4Canary = x\n", TORN),
        ("A.ssl.key.password=\\ \nA.Canary x\n", TORN),
        ("A.ssl.key.password=\\ \nA->B.Canary x\n", TORN),
        ("A.ssl.key.password=\\ \nCanary4.bootstrap.servers x\n", TORN),
        ('A.ssl.key.password=\n  "Canary"; x\n', f"{HIDDEN_KEY} is not known"),
        ("A.ssl.key.password=\n  Canary\n", f"{HIDDEN_KEY} is not known"),
        ("A.ssl.key.password=\\ \nBlue->Canary x\n", TORN),
        ("A.ssl.key.password=Blue\n4->Ca+nary! = x", f"{HIDDEN_KEY} names no flow"),
        ("A.ssl.key.password=\\ \nBlue4Canary\\ud801 x", TORN),
        ("x.a=\\ \nCanary x\nx.b=\\ \nCanary x\n", TORN),
    ],
)
def test_a_password_that_a_blank_behind_a_backslash_made_a_key_is_not_shown(
    tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(render_properties(TWO) + text)
    try:
        configuration = load_configuration(path, None)
    except ConfigError as error:
        said = [str(error)]
    else:
        said = [*configuration.warnings, *map(str, configuration.refused.values())]
    assert any(told in text for text in said), said
    assert "anary" not in "".join(said) + "".join(said).replace("+", "")
