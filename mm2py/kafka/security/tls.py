"""TLS of connections: makes contexts from the settings, renews them when files change, and explains failures.

Certificates are always checked, and versions before 1.2 never used. Changed files apply to the next connection, without
a restart. ``ssl.cipher.suites`` has Java's names of cipher suites. Only suites with forward secrecy and without SHA-1
are known: Python does not offer Java's other suites by default.

Counterpart: SslFactory and DefaultSslEngineFactory of Apache Kafka's clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mm2py.kafka.errors import KeyMaterialUnusable
from mm2py.kafka.security.settings import TLS_VERSIONS, TlsSettings, TlsVersion

if TYPE_CHECKING:
    from cryptography import x509

    from mm2py.kafka.security.key_material import Identity

STORE_MAX_BYTES: Final = 16 << 20

TLS13: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_KINDS: Final = {
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA384": "AES256-SHA384",
}
_TLS12: Final = {
    f"TLS_{exchange.replace('-', '_')}_WITH_{java}": f"{exchange}-{openssl}"
    for exchange in ("ECDHE-ECDSA", "ECDHE-RSA", "DHE-RSA")
    for java, openssl in _KINDS.items()
    if (exchange, java) != ("DHE-RSA", "AES_256_CBC_SHA384")
} | {"TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256"}


class UnknownSuite(ValueError):
    """The listed cipher suites cannot be used. The message completes "ssl.cipher.suites ..." and says what to do."""


def choose(suites: Sequence[str], versions: tuple[TlsVersion, ...]) -> tuple[tuple[str, ...], tuple[TlsVersion, ...]]:
    """Return OpenSSL's names for the suites of TLS 1.2, and the versions that are left for a connection.

    Args:
        suites: in Java's names; as in Java, a version none of whose suites is listed is not used.
        versions: of ``ssl.enabled.protocols``.
    Raises:
        UnknownSuite: a name is not known, or only some suites of TLS 1.3 are listed, or no version is left.
    """
    unknown = [suite for suite in suites if suite not in TLS13 and suite not in _TLS12]
    if unknown:
        raise UnknownSuite(
            f"names {unknown[0][:60]!a}, which is unknown or too weak; known are {', '.join(sorted({*TLS13, *_TLS12}))}"
        )
    newest = TLS13.intersection(suites)
    if newest and newest != TLS13:
        raise UnknownSuite(
            "names only some suites of TLS 1.3, among which Python cannot choose; name all three"
            f" ({', '.join(sorted(TLS13))}), or none of them to do without TLS 1.3"
        )
    older = tuple(_TLS12[suite] for suite in suites if suite in _TLS12)
    served = {"TLSv1.2": bool(older), "TLSv1.3": bool(newest)}
    left = tuple(version for version in TLS_VERSIONS if version in versions and served[version])
    if not left:
        raise UnknownSuite(f"names no suite of {' or '.join(versions)}, which ssl.enabled.protocols asks for")
    return older, left


_VERSIONS: Final[Mapping[TlsVersion, ssl.TLSVersion]] = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
Signature = tuple[int, int, int] | None
"""Inode, size and modification time (ns) of a file; None if there is no such file."""


def make_context(
    settings: TlsSettings, trusted: list[x509.Certificate] | None, identity: Identity | None
) -> ssl.SSLContext:
    """Return a context for connections that this process opens.

    Args:
        trusted: certificates to trust; None: those of the system.
        identity: our own certificate, if any.
    Raises:
        KeyMaterialUnusable: OpenSSL refuses the certificate or the key, as too weak for example.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # certificates and host names are checked
    context.check_hostname = settings.check_host_names
    _configure(context, settings, trusted, identity)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def make_server_context(
    settings: TlsSettings, trusted: list[x509.Certificate] | None, identity: Identity | None, verify: ssl.VerifyMode
) -> ssl.SSLContext:
    """Return a context for connections that others open to this process.

    Args:
        trusted: the authorities that sign certificates of clients; None: there are none.
        identity: our own certificate.
        verify: whether clients need a certificate. An invalid certificate ends the handshake in any case.
    Raises: as ``make_context``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = verify
    context.options |= ssl.OP_NO_TICKET  # a resumed session would not check whether the certificate is still valid
    context.num_tickets = 0
    _configure(context, settings, trusted, identity)
    return context


def _configure(
    context: ssl.SSLContext,
    settings: TlsSettings,
    trusted: list[x509.Certificate] | None,
    identity: Identity | None,
) -> None:
    context.minimum_version = min(_VERSIONS[version] for version in settings.versions)
    context.maximum_version = max(_VERSIONS[version] for version in settings.versions)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if settings.ciphers:
        context.set_ciphers(":".join(settings.ciphers))
    if trusted is not None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as in Java, every certificate in the store is an anchor
        from mm2py.kafka.security.key_material import pem_of  # noqa: PLC0415  (slow to load, and only TLS needs it)

        context.load_verify_locations(cadata=pem_of(trusted).decode())
    if identity is not None:
        with _nameless_file(identity.pem()) as path:
            try:
                context.load_cert_chain(path)
            except ssl.SSLError as error:
                raise KeyMaterialUnusable(
                    _where(settings), f"OpenSSL does not take it ({_name(error)})", remedy="Use a stronger key."
                ) from None


def _where(settings: TlsSettings) -> str:
    return str(settings.keys.path) if settings.keys is not None and settings.keys.path else "ssl.keystore.key"


@contextlib.contextmanager
def _nameless_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with this content that is never on a disk, or that no other user may open.

    OpenSSL reads keys from files only.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mm2py", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}"
        try:
            os.write(descriptor, content)
            yield path
        finally:
            os.close(descriptor)
    else:
        descriptor, path = tempfile.mkstemp(prefix="mm2py-")
        try:
            os.write(descriptor, content)
            yield path
        finally:
            os.close(descriptor)
            os.unlink(path)


MakeContext = Callable[[TlsSettings, "list[x509.Certificate] | None", "Identity | None"], ssl.SSLContext]


class Tls:
    """Makes the context for new connections, and makes it again when one of its files has changed."""

    def __init__(
        self, settings: TlsSettings, report: Callable[[str], None], *, make: MakeContext = make_context
    ) -> None:
        """``report`` gets a sentence when a changed file cannot be used and the old content stays in use."""
        self.settings = settings
        self._make = make
        self._report = report
        self._lock = asyncio.Lock()
        self._context: ssl.SSLContext | None = None
        self._signatures: tuple[Signature, ...] = ()
        """Signatures of the files when the context was made."""
        self._reported: tuple[tuple[Signature, ...], str] | None = None
        stores = (settings.trust, settings.keys)
        self._paths = [store.path for store in stores if store is not None and store.path is not None]

    async def context(self) -> ssl.SSLContext:
        """Return the context for the next connection.

        Raises:
            KeyMaterialUnusable: the files cannot be used, and never could be. If they once could, their last good
                content stays in use, and the failure is only reported.
        """
        async with self._lock:  # reading may wait for a disk, and opening a key is slow on purpose
            return await asyncio.to_thread(self.current)

    def current(self) -> ssl.SSLContext:
        """Return as ``context`` does, but block the thread while the disk answers."""
        signatures = tuple(_signature(path) for path in self._paths)
        if self._context is not None and signatures == self._signatures:
            return self._context
        try:
            context = self._made()
        except KeyMaterialUnusable as error:
            if self._context is None:
                raise
            # The cause, such as missing rights, may end without a change of the file: so each call tries again.
            if self._reported != (signatures, error.what):
                self._reported = signatures, error.what
                self._report(f"{error.what} The content it had before stays in use.")
        else:
            self._context, self._signatures, self._reported = context, signatures, None
        return self._context

    def _made(self) -> ssl.SSLContext:
        from mm2py.kafka.security.key_material import identity_of, trusted_certificates  # noqa: PLC0415  (see above)

        trust, keys = self.settings.trust, self.settings.keys
        return self._make(
            self.settings,
            None if trust is None else trusted_certificates(trust, content_of(trust.path)),
            None if keys is None else identity_of(keys, content_of(keys.path)),
        )


def _signature(path: Path) -> Signature:
    try:
        found = path.stat()
    except (OSError, ValueError):  # a NUL is in no name
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def content_of(path: Path | None) -> bytes | None:
    """Return the content of a store; None without a path. Blocks while the disk answers.

    Raises: KeyMaterialUnusable.
    """
    if path is None:
        return None
    try:
        if not path.is_file():  # a pipe would block us for ever
            why = "it is not a file" if path.exists() else "there is no such file"
            raise KeyMaterialUnusable(str(path), why, remedy="Put it there; mm2py keeps trying.")
        with path.open("rb") as file:
            content = file.read(STORE_MAX_BYTES + 1)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "it cannot be read"
        raise KeyMaterialUnusable(str(path), why, remedy="Let mm2py read it; it keeps trying.") from error
    if len(content) > STORE_MAX_BYTES:
        raise KeyMaterialUnusable(str(path), f"it is larger than {STORE_MAX_BYTES:,} bytes", remedy="Name a key store.")
    return content


# What a failure means

_TRUST: Final = "Check ssl.truststore: it must hold the authority that signed its certificate."
_VERIFY: Final[Mapping[int, tuple[str, str]]] = {
    9: ("its certificate is not valid yet", "Check the clocks, or renew its certificate."),
    10: ("its certificate has expired", "Renew its certificate."),
    18: ("its certificate is self-signed and not trusted", _TRUST),
    19: ("its certificate comes from an authority that is not trusted", _TRUST),
    20: ("its certificate comes from an authority that is not trusted", _TRUST),
    21: ("its certificate comes from an authority that is not trusted", _TRUST),
    23: ("its certificate was revoked", "Renew its certificate."),
}
_HOST_MISMATCH: Final = frozenset({62, 64})
_KEYS: Final = "Check ssl.keystore: the certificate must be one that the brokers trust."
_NO_KEYS: Final = "Set ssl.keystore: a certificate that the brokers trust, with its key."
_ALERTS: Final[tuple[tuple[str, str, str], ...]] = (
    ("CERTIFICATE_REQUIRED", "it asks for a client certificate, and none is set", _NO_KEYS),
    ("UNKNOWN_CA", "it does not trust the authority of our certificate", _KEYS),
    ("CERTIFICATE_EXPIRED", "it says that our certificate has expired", "Renew the certificate in ssl.keystore."),
    ("CERTIFICATE_REVOKED", "it says that our certificate was revoked", "Renew the certificate in ssl.keystore."),
    ("CERTIFICATE_UNKNOWN", "it refuses our certificate", _KEYS),
    ("UNSUPPORTED_CERTIFICATE", "it refuses our certificate", _KEYS),
    ("BAD_CERTIFICATE", "it refuses our certificate", _KEYS),
)
_VERSION_REASONS: Final = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE")


def explain(
    settings: TlsSettings, host: str, error: Exception, *, shaking_hands: bool = True
) -> tuple[str, str] | None:
    """Return what a failed connection means and what to do about it; None if TLS is not the reason.

    Args:
        error: of ``ssl``, or a broken connection.
        shaking_hands: whether the connection broke before the end of the handshake, as far as we know.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOST_MISMATCH:
            return (
                f"its certificate is not for {host}",
                "Use the name or address in its certificate, or give it a certificate for this one. To do without the"
                " check, set ssl.endpoint.identification.algorithm to nothing.",
            )
        return _VERIFY.get(error.verify_code, (f"its certificate is refused: {error.verify_message}", _TRUST))
    if isinstance(error, ssl.SSLError) and not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return _alert(settings, _name(error))
    broke = isinstance(error, ssl.SSLError | ConnectionError) and not isinstance(error, ConnectionRefusedError)
    return (_HUNG_UP, _HUNG_UP_REMEDY) if broke and shaking_hands else None


_HUNG_UP: Final = "it hung up during the handshake; a listener that speaks plain text does that"
_HUNG_UP_REMEDY: Final = "Check that the port is one for TLS: of a Kafka broker an SSL or SASL_SSL listener."


def _alert(settings: TlsSettings, reason: str) -> tuple[str, str]:
    versions = " and ".join(settings.versions)
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason or "HTTP_REQUEST" in reason:
        return "what listens there does not speak TLS", _HUNG_UP_REMEDY
    if any(part in reason for part in _VERSION_REASONS):
        return (
            f"it shares no TLS version with mm2py, which speaks {versions}",
            "Let the broker speak TLS 1.2 or 1.3, and see ssl.enabled.protocols.",
        )
    for part, why, remedy in _ALERTS:
        if part in reason:
            missing = settings.keys is None
            return ("it asks for a client certificate, and none is set", _NO_KEYS) if missing else (why, remedy)
    if "HANDSHAKE_FAILURE" in reason:
        more = ", or it asks for a client certificate, and none is set" if settings.keys is None else ""
        return (
            f"it ended the handshake: it shares no TLS version or cipher suite with mm2py{more}",
            "Compare ssl.enabled.protocols, ssl.cipher.suites and ssl.client.auth of both sides.",
        )
    return f"TLS failed ({reason})", "Compare the ssl settings of both sides."


def _name(error: ssl.SSLError) -> str:
    return getattr(error, "reason", None) or str(error.args[-1] if error.args else type(error).__name__)
