"""Names of cipher suites: Java's, as they stand in ``ssl.cipher.suites``, and OpenSSL's. Pure.

Only suites with forward secrecy and without SHA-1 are known: what else Java lists, Python does not offer by default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mm2py.kafka.security import TLS_VERSIONS, TlsVersion

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
    """The message completes "ssl.cipher.suites ...": which name, and what to do."""


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
