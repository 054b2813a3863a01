"""The settings of secured connections, ``security.protocol``, ``ssl.*`` and ``sasl.*``, and what each does here.

Every name that Kafka's clients have is listed here with its true status; a test compares the table with Kafka's own.
``sasl.py`` judges values that do not fit together.
"""

from __future__ import annotations

from typing import Any

from mm2py.config.kinds import BadValue, boolean, integer, java_trim, one_of, string, strings
from mm2py.config.row import (
    AT_EVERY_LEVEL,
    BY_SECURITY,
    Key,
    Section,
    Status,
    Table,
    is_blank,
    is_one_of,
    refused,
    superseded,
    table_of,
)
from mm2py.secret import Secret

_PACKAGE = "org.apache.kafka.common.security"
_OAUTH = f"{_PACKAGE}.oauthbearer"
_JAVA_WAY_OUT = "mm2py does not run Java classes; remove it"
_OLD_TLS = is_one_of("SSL", "SSLv2", "SSLv3", "TLSv1", "TLSv1.1")


def secret(text: str) -> Secret:
    return Secret(java_trim(text))


def number(low: float, high: float) -> Any:
    def parse(text: str) -> float:
        try:
            value = float(java_trim(text).removesuffix("d").removesuffix("f"))
        except ValueError:
            raise BadValue("not a number") from None
        if not low <= value <= high:
            raise BadValue(f"not a number from {low:g} to {high:g}")
        return value

    return parse


def tls_versions(text: str) -> tuple[str, ...]:
    versions = strings(text)
    if any(_OLD_TLS(version) for version in versions):
        raise BadValue("a list with a version older than TLSv1.2, which mm2py never speaks; remove that version")
    if not versions or not set(versions) <= {"TLSv1.2", "TLSv1.3"}:
        raise BadValue("not a list out of TLSv1.2, TLSv1.3")
    return versions


def _classes(package: str, *names: str) -> Any:
    return is_one_of("", *names, *(f"{package}.{name}" for name in names))


_STORE_TYPE = one_of("PEM", "PKCS12", "JKS", any_case=True)

SECURED_CONNECTIONS = Section(
    "secured connections",
    (
        "Write these for a cluster, or at the top for all of them. `A.consumer...` overrides `A...` where A is"
        " the source, `B.producer...` overrides `B...` where B is the target; all connections to that side use"
        " them. `A.admin...` does not count. docs/security.md has an example of each kind. mm2py reads the files"
        " again when they change."
    ),
)
SECURITY_PROTOCOL = SECURED_CONNECTIONS.row(
    "security.protocol",
    one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", any_case=True),
    "PLAINTEXT",
    readers=BY_SECURITY,
    lines=(
        "#A.security.protocol = PLAINTEXT",
        "#B.security.protocol = PLAINTEXT",
        "##A.security.protocol = SASL_SSL",
        "##B.security.protocol = SASL_SSL",
    ),
    text="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
)
TRUSTSTORE_TYPE = SECURED_CONNECTIONS.row(
    "ssl.truststore.type",
    _STORE_TYPE,
    "JKS",
    readers=BY_SECURITY,
    at="A.",
    text=(
        "The certificates to trust; without them, the authorities of the system. PEM, PKCS12, or JKS. JKS is"
        " Java's name for both its old format, which mm2py does not read, and PKCS12. The password opens PKCS12"
        " only."
    ),
)
TRUSTSTORE_LOCATION: Key[str | None] = SECURED_CONNECTIONS.row(
    "ssl.truststore.location",
    string,
    None,
    readers=BY_SECURITY,
    lines=("##A.ssl.truststore.location = /etc/mm2py/truststore.p12",),
)
TRUSTSTORE_PASSWORD: Key[Secret | None] = SECURED_CONNECTIONS.row(
    "ssl.truststore.password", secret, None, readers=BY_SECURITY, lines=("##A.ssl.truststore.password = change-it",)
)
SECURED_CONNECTIONS.example("The same as PEM in the file itself.", "##B.ssl.truststore.type = PEM")
TRUSTSTORE_CERTIFICATES: Key[Secret | None] = SECURED_CONNECTIONS.row(
    "ssl.truststore.certificates",
    secret,
    None,
    readers=BY_SECURITY,
    lines=(
        "##B.ssl.truststore.certificates = -----BEGIN CERTIFICATE----- \\\n"
        "##    MIIB... \\\n"
        "##    -----END CERTIFICATE-----",
    ),
)
KEYSTORE_TYPE = SECURED_CONNECTIONS.row(
    "ssl.keystore.type",
    _STORE_TYPE,
    "JKS",
    readers=BY_SECURITY,
    at="A.",
    text="mm2py's own certificate with its key, for brokers that ask for one. The password opens PKCS12.",
)
KEYSTORE_LOCATION: Key[str | None] = SECURED_CONNECTIONS.row(
    "ssl.keystore.location",
    string,
    None,
    readers=BY_SECURITY,
    lines=("##A.ssl.keystore.location = /etc/mm2py/keystore.p12",),
)
KEYSTORE_PASSWORD: Key[Secret | None] = SECURED_CONNECTIONS.row(
    "ssl.keystore.password", secret, None, readers=BY_SECURITY, lines=("##A.ssl.keystore.password = change-it",)
)
SECURED_CONNECTIONS.example(
    "The same as PEM in the file itself. The password opens an encrypted key, here and in a PEM file.",
    "##B.ssl.keystore.type = PEM",
)
KEYSTORE_CERTIFICATE_CHAIN: Key[Secret | None] = SECURED_CONNECTIONS.row(
    "ssl.keystore.certificate.chain",
    secret,
    None,
    readers=BY_SECURITY,
    lines=("##B.ssl.keystore.certificate.chain = -----BEGIN CERTIFICATE----- MIIB... -----END CERTIFICATE-----",),
)
KEYSTORE_KEY: Key[Secret | None] = SECURED_CONNECTIONS.row(
    "ssl.keystore.key",
    secret,
    None,
    readers=BY_SECURITY,
    lines=("##B.ssl.keystore.key = -----BEGIN ENCRYPTED PRIVATE KEY----- MIIB... -----END ENCRYPTED PRIVATE KEY-----",),
)
KEY_PASSWORD: Key[Secret | None] = SECURED_CONNECTIONS.row(
    "ssl.key.password", secret, None, readers=BY_SECURITY, lines=("##B.ssl.key.password = change-it",)
)
ENDPOINT_IDENTIFICATION = SECURED_CONNECTIONS.row(
    "ssl.endpoint.identification.algorithm",
    one_of("https", "", any_case=True),
    "https",
    readers=BY_SECURITY,
    at="A.",
    text="Compare host names with certificates. An empty value turns that off, with a warning.",
)
ENABLED_PROTOCOLS: Key[tuple[str, ...]] = SECURED_CONNECTIONS.row(
    "ssl.enabled.protocols",
    tls_versions,
    ("TLSv1.2", "TLSv1.3"),
    readers=BY_SECURITY,
    at="A.",
    text=(
        "Versions of TLS, and suites in Java's names. mm2py does not use a version without a listed suite."
        " Without a list it uses the usual suites."
    ),
)
CIPHER_SUITES: Key[tuple[str, ...]] = SECURED_CONNECTIONS.row(
    "ssl.cipher.suites",
    strings,
    (),
    readers=BY_SECURITY,
    lines=("##A.ssl.cipher.suites = TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256",),
)
MECHANISM = SECURED_CONNECTIONS.row(
    "sasl.mechanism",
    string,
    "GSSAPI",
    readers=BY_SECURITY,
    lines=(
        "#A.sasl.mechanism = GSSAPI",
        "##A.sasl.mechanism = SCRAM-SHA-512",
    ),
    text=("How to authenticate: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or GSSAPI, which is Kerberos."),
)
JAAS_CONFIG: Key[Secret | None] = SECURED_CONNECTIONS.row(
    "sasl.jaas.config",
    secret,
    None,
    readers=BY_SECURITY,
    lines=(
        "##A.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        '##    username="mirror" password="change-it";',
    ),
    text="Name and password, or keytab and principal, in the login module of the mechanism.",
)
SECURED_CONNECTIONS.example(
    (
        "OAUTHBEARER: a token server and the client's credentials, or file:///path of a file that another program"
        " keeps up to date. mm2py asks for the scope if it is set. It sends id and secret as they are, or"
        " URL-encodes them first."
    ),
    "##B.sasl.mechanism = OAUTHBEARER",
)
TOKEN_ENDPOINT_URL: Key[str | None] = SECURED_CONNECTIONS.row(
    "sasl.oauthbearer.token.endpoint.url",
    string,
    None,
    readers=BY_SECURITY,
    lines=("##B.sasl.oauthbearer.token.endpoint.url = https://login.example/oauth2/token",),
)
OAUTH_CLIENT_ID: Key[str | None] = SECURED_CONNECTIONS.row(
    "sasl.oauthbearer.client.credentials.client.id",
    string,
    None,
    readers=BY_SECURITY,
    lines=("##B.sasl.oauthbearer.client.credentials.client.id = mirror",),
)
OAUTH_CLIENT_SECRET: Key[Secret | None] = SECURED_CONNECTIONS.row(
    "sasl.oauthbearer.client.credentials.client.secret",
    secret,
    None,
    readers=BY_SECURITY,
    lines=("##B.sasl.oauthbearer.client.credentials.client.secret = change-it",),
)
OAUTH_SCOPE: Key[str | None] = SECURED_CONNECTIONS.row(
    "sasl.oauthbearer.scope", string, None, readers=BY_SECURITY, lines=("##B.sasl.oauthbearer.scope = kafka",)
)
OAUTH_URL_ENCODE = SECURED_CONNECTIONS.row(
    "sasl.oauthbearer.header.urlencode", boolean, False, readers=BY_SECURITY, at="B."
)
LOGIN_CONNECT_TIMEOUT = SECURED_CONNECTIONS.row(
    "sasl.login.connect.timeout.ms",
    integer(1),
    10_000,
    readers=BY_SECURITY,
    at="B.",
    text=(
        "Milliseconds to wait for the token server. Milliseconds between attempts, which grow from the first to"
        " the second."
    ),
)
LOGIN_READ_TIMEOUT = SECURED_CONNECTIONS.row(
    "sasl.login.read.timeout.ms", integer(1), 10_000, readers=BY_SECURITY, at="B."
)
LOGIN_BACKOFF = SECURED_CONNECTIONS.row(
    "sasl.login.retry.backoff.ms", integer(1, 2**63 - 1), 100, readers=BY_SECURITY, at="B."
)
LOGIN_BACKOFF_MAX = SECURED_CONNECTIONS.row(
    "sasl.login.retry.backoff.max.ms", integer(1, 2**63 - 1), 10_000, readers=BY_SECURITY, at="B."
)
REFRESH_WINDOW_FACTOR: Key[float] = SECURED_CONNECTIONS.row(
    "sasl.login.refresh.window.factor",
    number(0.5, 1.0),
    0.8,
    readers=BY_SECURITY,
    at="B.",
    text=(
        "When mm2py fetches a new token: after this part of its lifetime, and up to the jitter more of it. If the"
        " lifetime is long enough, no sooner than the first number of seconds after it was fetched, and no later"
        " than the second before its end."
    ),
)
REFRESH_WINDOW_JITTER: Key[float] = SECURED_CONNECTIONS.row(
    "sasl.login.refresh.window.jitter", number(0.0, 0.25), 0.05, readers=BY_SECURITY, at="B."
)
REFRESH_MIN_PERIOD = SECURED_CONNECTIONS.row(
    "sasl.login.refresh.min.period.seconds", integer(0, 900), 60, readers=BY_SECURITY, at="B."
)
REFRESH_BUFFER = SECURED_CONNECTIONS.row(
    "sasl.login.refresh.buffer.seconds", integer(0, 3600), 300, readers=BY_SECURITY, at="B."
)
KERBEROS_SERVICE: Key[str | None] = SECURED_CONNECTIONS.row(
    "sasl.kerberos.service.name",
    string,
    None,
    readers=BY_SECURITY,
    lines=("##sasl.kerberos.service.name = kafka",),
    text=(
        "GSSAPI: the first part of the principals of the brokers, if serviceName in the login module does not say it."
        " docs/kerberos.md has the login module. GSSAPI needs the package gssapi (pip install 'mm2py[kerberos]')."
    ),
)
TICKET_WINDOW_FACTOR: Key[float] = SECURED_CONNECTIONS.row(
    "sasl.kerberos.ticket.renew.window.factor",
    number(0.0, 1.0),
    0.8,
    readers=BY_SECURITY,
    at="B.",
    text=(
        "When mm2py gets a new ticket with the keytab: after this part of its lifetime, and up to the jitter more of"
        " it. If the lifetime is long enough, no sooner than the number of milliseconds after the last one."
    ),
)
TICKET_JITTER: Key[float] = SECURED_CONNECTIONS.row(
    "sasl.kerberos.ticket.renew.jitter", number(0.0, 1.0), 0.05, readers=BY_SECURITY, at="B."
)
MIN_RELOGIN = SECURED_CONNECTIONS.row(
    "sasl.kerberos.min.time.before.relogin", integer(0, 2**63 - 1), 60_000, readers=BY_SECURITY, at="B."
)
SASL_REQUIRE_TLS = SECURED_CONNECTIONS.row(
    "sasl.require.tls",
    boolean,
    False,
    readers=AT_EVERY_LEVEL,
    text=(
        "Refuse flows that would authenticate without TLS, with SASL_PLAINTEXT; otherwise there is a warning."
        " Only mm2py has these two; at the top, for a cluster or for a flow."
    ),
)
OAUTH_ALLOW_HTTP = SECURED_CONNECTIONS.row(
    "sasl.oauthbearer.allow.http",
    boolean,
    False,
    readers=AT_EVERY_LEVEL,
    text="Send the client's secret over http, too, to a token server on the same machine.",
)

OWN: tuple[Key[bool], ...] = (SASL_REQUIRE_TLS, OAUTH_ALLOW_HTTP)
"""Settings that only mm2py has: at the top, for a cluster, for a flow."""

_BROKER_CHECKS = "brokers check tokens, mm2py only brings them"

SECURITY: Table = table_of(
    [key for key in SECURED_CONNECTIONS.rows if key.readers == BY_SECURITY],
    Key(
        "ssl.protocol",
        one_of("TLS", "TLSv1.2", "TLSv1.3", any_case=True),
        None,
        Status.SUPERSEDED,
        "ssl.enabled.protocols decides",
        agrees=is_one_of("TLS", "TLSv1.3"),
    ),
    superseded(
        "ssl.keymanager.algorithm ssl.trustmanager.algorithm",
        "OpenSSL checks certificates",
        agrees=is_one_of("", "SunX509", "PKIX"),
    ),
    superseded("ssl.secure.random.implementation", "OpenSSL draws random numbers", agrees=is_blank),
    refused("ssl.provider", _JAVA_WAY_OUT, is_blank),
    refused(
        "ssl.engine.factory.class",
        _JAVA_WAY_OUT,
        _classes(f"{_PACKAGE}.ssl", "DefaultSslEngineFactory"),
    ),
    refused(
        "sasl.client.callback.handler.class",
        _JAVA_WAY_OUT,
        is_one_of(
            "",
            f"{_PACKAGE}.authenticator.SaslClientCallbackHandler",
            f"{_OAUTH}.internals.OAuthBearerSaslClientCallbackHandler",
        ),
    ),
    refused(
        "sasl.login.callback.handler.class",
        _JAVA_WAY_OUT,
        is_one_of(
            "",
            f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
            f"{_OAUTH}.secured.OAuthBearerLoginCallbackHandler",
            f"{_PACKAGE}.authenticator.AbstractLogin$DefaultLoginCallbackHandler",
        ),
    ),
    refused(
        "sasl.login.class",
        _JAVA_WAY_OUT,
        is_one_of("", f"{_PACKAGE}.authenticator.DefaultLogin", f"{_OAUTH}.internals.OAuthBearerRefreshingLogin"),
    ),
    refused(
        "sasl.oauthbearer.jwt.retriever.class",
        _JAVA_WAY_OUT,
        _classes(_OAUTH, "DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever"),
    ),
    refused(
        "sasl.oauthbearer.jwt.validator.class",
        _JAVA_WAY_OUT,
        _classes(_OAUTH, "DefaultJwtValidator", "ClientJwtValidator"),
    ),
    refused(
        "sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file"
        " sasl.oauthbearer.assertion.template.file",
        "tokens are had by client credentials or from a file; remove it",
        is_blank,
    ),
    superseded(
        "sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud"
        " sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss"
        " sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds"
        " sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.private.key.passphrase",
        "tokens are had by client credentials or from a file, not by assertions",
    ),
    superseded(
        "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer"
        " sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
        " sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url"
        " sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name",
        _BROKER_CHECKS,
    ),
    superseded(
        "sasl.kerberos.kinit.cmd",
        "mm2py runs no kinit: it logs in with the keytab by itself",
        agrees=is_one_of("", "/usr/bin/kinit"),
    ),
)
"""Settings that the clients of both sides share: all that a cluster passes on to them, but ``bootstrap.servers``."""
