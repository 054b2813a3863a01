"""The settings of secured connections, ``security.protocol``, ``ssl.*`` and ``sasl.*``, and what each does here.

Every name that Kafka's clients have stands here with an honest standing; a test holds the table to Kafka's own. Values
that do not go together are judged in ``sasl.py``.
"""

from __future__ import annotations

from typing import Any

from mm2py.config.kinds import (
    BadValue,
    Key,
    Status,
    Table,
    boolean,
    integer,
    is_blank,
    is_one_of,
    java_trim,
    not_yet,
    one_of,
    refused,
    string,
    strings,
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


SECURITY_PROTOCOL = Key(
    "security.protocol", one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", any_case=True), "PLAINTEXT"
)

_STORE_TYPE = one_of("PEM", "PKCS12", "JKS", any_case=True)
TRUSTSTORE_TYPE = Key("ssl.truststore.type", _STORE_TYPE, "JKS")
TRUSTSTORE_LOCATION: Key[str | None] = Key("ssl.truststore.location", string, None)
TRUSTSTORE_PASSWORD: Key[Secret | None] = Key("ssl.truststore.password", secret, None)
TRUSTSTORE_CERTIFICATES: Key[Secret | None] = Key("ssl.truststore.certificates", secret, None)
KEYSTORE_TYPE = Key("ssl.keystore.type", _STORE_TYPE, "JKS")
KEYSTORE_LOCATION: Key[str | None] = Key("ssl.keystore.location", string, None)
KEYSTORE_PASSWORD: Key[Secret | None] = Key("ssl.keystore.password", secret, None)
KEYSTORE_CERTIFICATE_CHAIN: Key[Secret | None] = Key("ssl.keystore.certificate.chain", secret, None)
KEYSTORE_KEY: Key[Secret | None] = Key("ssl.keystore.key", secret, None)
KEY_PASSWORD: Key[Secret | None] = Key("ssl.key.password", secret, None)
ENDPOINT_IDENTIFICATION = Key("ssl.endpoint.identification.algorithm", one_of("https", "", any_case=True), "https")
ENABLED_PROTOCOLS: Key[tuple[str, ...]] = Key("ssl.enabled.protocols", tls_versions, ("TLSv1.2", "TLSv1.3"))
CIPHER_SUITES: Key[tuple[str, ...]] = Key("ssl.cipher.suites", strings, ())

MECHANISM = Key("sasl.mechanism", string, "GSSAPI")
JAAS_CONFIG: Key[Secret | None] = Key("sasl.jaas.config", secret, None)
TOKEN_ENDPOINT_URL: Key[str | None] = Key("sasl.oauthbearer.token.endpoint.url", string, None)
OAUTH_CLIENT_ID: Key[str | None] = Key("sasl.oauthbearer.client.credentials.client.id", string, None)
OAUTH_CLIENT_SECRET: Key[Secret | None] = Key("sasl.oauthbearer.client.credentials.client.secret", secret, None)
OAUTH_SCOPE: Key[str | None] = Key("sasl.oauthbearer.scope", string, None)
OAUTH_URL_ENCODE = Key("sasl.oauthbearer.header.urlencode", boolean, False)
LOGIN_CONNECT_TIMEOUT = Key("sasl.login.connect.timeout.ms", integer(1), 10_000)
LOGIN_READ_TIMEOUT = Key("sasl.login.read.timeout.ms", integer(1), 10_000)
LOGIN_BACKOFF = Key("sasl.login.retry.backoff.ms", integer(1, 2**63 - 1), 100)
LOGIN_BACKOFF_MAX = Key("sasl.login.retry.backoff.max.ms", integer(1, 2**63 - 1), 10_000)
REFRESH_WINDOW_FACTOR: Key[float] = Key("sasl.login.refresh.window.factor", number(0.5, 1.0), 0.8)
REFRESH_WINDOW_JITTER: Key[float] = Key("sasl.login.refresh.window.jitter", number(0.0, 0.25), 0.05)
REFRESH_MIN_PERIOD = Key("sasl.login.refresh.min.period.seconds", integer(0, 900), 60)
REFRESH_BUFFER = Key("sasl.login.refresh.buffer.seconds", integer(0, 3600), 300)

SASL_REQUIRE_TLS = Key("sasl.require.tls", boolean, False)
OAUTH_ALLOW_HTTP = Key("sasl.oauthbearer.allow.http", boolean, False)
OWN: tuple[Key[bool], ...] = (SASL_REQUIRE_TLS, OAUTH_ALLOW_HTTP)
"""Only mm2py has them: at the top, for a cluster, for a flow."""

_BROKER_CHECKS = "brokers check tokens, mm2py only brings them"

SECURITY: Table = table_of(
    SECURITY_PROTOCOL,
    TRUSTSTORE_TYPE,
    TRUSTSTORE_LOCATION,
    TRUSTSTORE_PASSWORD,
    TRUSTSTORE_CERTIFICATES,
    KEYSTORE_TYPE,
    KEYSTORE_LOCATION,
    KEYSTORE_PASSWORD,
    KEYSTORE_CERTIFICATE_CHAIN,
    KEYSTORE_KEY,
    KEY_PASSWORD,
    ENDPOINT_IDENTIFICATION,
    ENABLED_PROTOCOLS,
    CIPHER_SUITES,
    MECHANISM,
    JAAS_CONFIG,
    TOKEN_ENDPOINT_URL,
    OAUTH_CLIENT_ID,
    OAUTH_CLIENT_SECRET,
    OAUTH_SCOPE,
    OAUTH_URL_ENCODE,
    LOGIN_CONNECT_TIMEOUT,
    LOGIN_READ_TIMEOUT,
    LOGIN_BACKOFF,
    LOGIN_BACKOFF_MAX,
    REFRESH_WINDOW_FACTOR,
    REFRESH_WINDOW_JITTER,
    REFRESH_MIN_PERIOD,
    REFRESH_BUFFER,
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
    not_yet(
        "sasl.kerberos.kinit.cmd sasl.kerberos.service.name sasl.kerberos.min.time.before.relogin"
        " sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor"
    ),
)
"""What the clients of both sides have in common; ``bootstrap.servers`` apart, all that a cluster hands on to them."""
