"""How the connections to one cluster are secured: the settings as values. Pure.

``mm2py/config`` reads them, ``access.py`` acts on them.

Counterpart: ``security.protocol``, ``ssl.*`` and ``sasl.*`` of Apache Kafka's clients.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from mm2py.secret import Secret

if TYPE_CHECKING:
    from pathlib import Path

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
StoreType = Literal["PEM", "PKCS12", "JKS"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
TlsVersion = Literal["TLSv1.2", "TLSv1.3"]

TLS_VERSIONS: Final[tuple[TlsVersion, ...]] = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class TrustStore:
    """The certificates that are trusted: a file, or PEM text from the settings."""

    type: StoreType
    path: Path | None = None
    password: Secret | None = None
    certificates: Secret | None = None


@dataclass(frozen=True, slots=True)
class KeyStore:
    """Our own certificate and its key: a file, or PEM texts from the settings."""

    type: StoreType
    path: Path | None = None
    password: Secret | None = None
    certificate_chain: Secret | None = None
    key: Secret | None = None
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    trust: TrustStore | None = None
    """None: the certificate authorities of the system."""
    keys: KeyStore | None = None
    check_host_names: bool = True
    versions: tuple[TlsVersion, ...] = TLS_VERSIONS
    ciphers: tuple[str, ...] = ()
    """Suites of TLS 1.2, in OpenSSL's names; empty: Python's defaults."""


@dataclass(frozen=True, slots=True)
class PasswordCredential:
    """For PLAIN and SCRAM."""

    username: str
    password: Secret


@dataclass(frozen=True, slots=True)
class RefreshSettings:
    """When a new token is fetched, as in Kafka's ``sasl.login.refresh.*``, or a new ticket."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """An OAuth server that gives tokens for a client's id and secret."""

    url: str
    client_id: str
    client_secret: Secret
    scope: str | None = None
    url_encode: bool = False
    tls: TlsSettings = TlsSettings()
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 10.0
    backoff_s: float = 0.1
    backoff_most_s: float = 10.0
    refresh: RefreshSettings = RefreshSettings()
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file into which another program writes tokens; it is read again when it changes."""

    path: Path
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class KerberosCredential:
    """For GSSAPI: a keytab with the principal whose keys it holds, or a cache of tickets that another program fills."""

    service: str
    """The first part of the brokers' principals, usually ``kafka``."""
    principal: str | None = None
    """Always set with a keytab."""
    keytab: Path | None = None
    ticket_cache: str | None = None
    """Without a keytab: the cache's file; None for the one of the system, as ``klist`` finds it."""
    renewal: RefreshSettings = RefreshSettings(buffer_s=0.0)
    """When mm2py logs in again."""

    @property
    def where(self) -> str:
        """What messages name: the keytab, or the cache of tickets."""
        if self.keytab is not None:
            return str(self.keytab)
        return self.ticket_cache or "the system's cache of tickets"


@dataclass(frozen=True, slots=True)
class SaslSettings:
    mechanism: Mechanism
    credential: PasswordCredential | TokenEndpoint | TokenFile | KerberosCredential


@dataclass(frozen=True, slots=True)
class Security:
    """How one side of a flow secures its connections to one cluster."""

    protocol: Protocol = "PLAINTEXT"
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None


PLAINTEXT: Final = Security()


JKS_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""The first bytes of files in Java's own two formats, JKS and JCEKS."""


def convert_advice(where: str) -> str:
    """Return how to convert a file from Java's own format. keytool asks for the passwords: none is in the line."""
    source, target = shlex.quote(where), shlex.quote(f"{where.removesuffix('.jks')}.p12")
    return (
        f"Convert it with: keytool -importkeystore -srckeystore {source} -destkeystore {target} -deststoretype PKCS12 ;"
        " then name the new file, with type PKCS12."
    )
