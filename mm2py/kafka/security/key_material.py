r"""Reads certificates and keys from the files or texts that the settings name. Pure.

Both formats come as bytes: PEM, or PKCS12 as keytool and openssl write it. Like Java, this module also reads PKCS12
under the type JKS. It refuses Java's old JKS format, and says how to convert it. Like Kafka, it accepts PEM without
line breaks, because a properties file that continues a line by a ``\`` loses them.

A worker loads this module with its first TLS connection: the library behind it takes a while.

Counterpart: PemParser and the stores of DefaultSslEngineFactory of Apache Kafka's clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    pkcs12,
)

from mm2py.kafka.errors import KeyMaterialUnusable
from mm2py.kafka.security.settings import JKS_MAGICS, KeyStore, StoreType, TrustStore, convert_advice
from mm2py.secret import Secret

_BLOCK: Final = re.compile(r"-{5}\s*BEGIN\s+([A-Z0-9 ]{1,40}?)\s*-{5}(.*?)-{5}\s*END\s+\1\s*-{5}", re.DOTALL)
_HEADER: Final = re.compile(r"^[ \t]*[A-Za-z-]+:[^\n]*$", re.MULTILINE)
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True, slots=True)
class PemBlock:
    label: str
    text: str
    """The whole block, lines of 64 characters."""

    def __repr__(self) -> str:
        return f"PemBlock({self.label!r}, {len(self.text)} characters)"

    @property
    def is_certificate(self) -> bool:
        return self.label in ("CERTIFICATE", "X509 CERTIFICATE")

    @property
    def is_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")


def pem_blocks(text: str) -> list[PemBlock]:
    """Return the blocks of a text in their order; text between them is ignored.

    Raises:
        ValueError: the content of a block cannot be base64. The message does not repeat it.
    """
    blocks = []
    for label, body in _BLOCK.findall(text.replace("\r\n", "\n").replace("\r", "\n")):
        headers = [] if "PRIVATE KEY" not in label else _HEADER.findall(body)
        base64 = "".join(_HEADER.sub("", body).split())
        if not _BASE64.fullmatch(base64):
            raise ValueError(f"its {label} block is damaged")
        lines = [base64[at : at + 64] for at in range(0, len(base64), 64)]
        head = [*(header.strip() for header in headers), ""] if headers else []
        blocks.append(
            PemBlock(label, "\n".join([f"-----BEGIN {label}-----", *head, *lines, f"-----END {label}-----\n"]))
        )
    return blocks


_AGAIN: Final = "It is read again at the next attempt; mm2py keeps trying."


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with the certificates that vouch for it, and its key."""

    chain: tuple[x509.Certificate, ...]
    key: PrivateKeyTypes = field(repr=False)

    def pem(self) -> bytes:
        """Return key and certificates as OpenSSL loads them. The key is not encrypted: keep it in memory only."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return key + pem_of(self.chain)


def pem_of(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as OpenSSL loads them."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def trusted_certificates(trust: TrustStore, content: bytes | None) -> list[x509.Certificate]:
    """Return the certificates of a trust store.

    Args:
        content: of its file; None when the certificates are in the settings.
    Raises:
        KeyMaterialUnusable: the store cannot be read, or has no certificate.
    """
    if content is None:
        assert trust.certificates is not None  # noqa: S101  (config/security/tls.py sees to it)
        where, found = (
            "ssl.truststore.certificates",
            _pem_certificates("ssl.truststore.certificates", trust.certificates.reveal()),
        )
    else:
        where = str(trust.path)
        if _store_type(where, trust.type, content) == "PEM":
            found = _pem_certificates(where, _text(where, content))
        else:
            store = _pkcs12(where, content, trust.password, "ssl.truststore.password")
            entries = [*([store.cert] if store.cert else []), *store.additional_certs]
            found = [entry.certificate for entry in entries]
    if not found:
        raise KeyMaterialUnusable(where, "no certificate is in it", remedy=_AGAIN)
    return found


def identity_of(keys: KeyStore, content: bytes | None) -> Identity:
    """Return our certificate and key.

    Args:
        content: of the store's file; None when both are in the settings.
    Raises:
        KeyMaterialUnusable: key or certificate cannot be read or is missing, or they do not belong together.
    """
    if content is None:
        assert keys.certificate_chain is not None and keys.key is not None  # noqa: S101
        where = "ssl.keystore.key"
        chain = _pem_certificates("ssl.keystore.certificate.chain", keys.certificate_chain.reveal())
        key = _pem_key(where, keys.key.reveal(), keys.key_password)
    else:
        where = str(keys.path)
        if _store_type(where, keys.type, content) == "PEM":
            text = _text(where, content)
            chain, key = _pem_certificates(where, text), _pem_key(where, text, keys.key_password)
        else:
            store = _pkcs12(where, content, keys.password, "ssl.keystore.password")
            if store.key is None or store.cert is None:
                raise KeyMaterialUnusable(
                    where,
                    "it holds no private key with its certificate",
                    remedy="A key store needs both; certificates alone belong into a trust store.",
                )
            key = store.key
            chain = [store.cert.certificate, *(other.certificate for other in store.additional_certs)]
    if not chain:
        raise KeyMaterialUnusable(where, "no certificate is in it", remedy=_AGAIN)
    ours = _public_bytes(key)
    chain.sort(key=lambda certificate: _public_bytes(certificate) != ours)
    if _public_bytes(chain[0]) != ours:
        raise KeyMaterialUnusable(
            where, "the private key does not belong to the certificate", remedy=f"Put a matching pair there. {_AGAIN}"
        )
    return Identity(tuple(chain), key)


def _public_bytes(owner: PrivateKeyTypes | x509.Certificate) -> bytes:
    return owner.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _store_type(where: str, stated: StoreType, content: bytes) -> StoreType:
    if content.startswith(JKS_MAGICS):
        raise KeyMaterialUnusable(where, "it is in Java's own old format (JKS)", remedy=convert_advice(where))
    looks_like_pem = b"-----BEGIN " in content[:65536]
    if stated != "PEM" and looks_like_pem:
        raise KeyMaterialUnusable(
            where, f"it is PEM, and its type is set to {stated}", remedy="Set the store's type to PEM."
        )
    if stated == "PEM" and not looks_like_pem:
        raise KeyMaterialUnusable(where, "it is not PEM, and its type is set to PEM", remedy="Set the store's type.")
    return stated


def _text(where: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise KeyMaterialUnusable(where, "it is not text", remedy=_AGAIN) from None


def _pem_certificates(where: str, text: str) -> list[x509.Certificate]:
    try:
        blocks = [block for block in pem_blocks(text) if block.is_certificate]
        return [
            x509.load_pem_x509_certificate(block.text.replace(block.label, "CERTIFICATE").encode()) for block in blocks
        ]
    except ValueError:
        raise KeyMaterialUnusable(where, "a certificate in it is damaged", remedy=_AGAIN) from None


def _pem_key(where: str, text: str, password: Secret | None) -> PrivateKeyTypes:
    try:
        keys = [block for block in pem_blocks(text) if block.is_key]
    except ValueError:
        raise KeyMaterialUnusable(where, "a block in it is damaged", remedy=_AGAIN) from None
    if len(keys) != 1:
        raise KeyMaterialUnusable(where, f"it holds {len(keys)} private keys, not one", remedy=_AGAIN)
    encrypted = keys[0].label.startswith("ENCRYPTED") or "Proc-Type: 4,ENCRYPTED" in keys[0].text
    if encrypted and not password:
        raise KeyMaterialUnusable(
            where, "the private key is encrypted, and ssl.key.password is not set", remedy="Set ssl.key.password."
        )
    try:
        secret = password.reveal().encode() if password is not None and encrypted else None
        return load_pem_private_key(keys[0].text.encode(), secret)
    except (ValueError, TypeError):
        why = "ssl.key.password does not open the private key" if encrypted else "the private key is damaged"
        raise KeyMaterialUnusable(where, why, remedy=_AGAIN) from None
    except Exception as error:  # an algorithm that the library does not have is an exception of its own
        raise KeyMaterialUnusable(
            where, f"the private key cannot be read ({type(error).__name__})", remedy=_AGAIN
        ) from None


def _pkcs12(where: str, content: bytes, password: Secret | None, password_key: str) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(content, password.reveal().encode() if password else None)
    except ValueError:
        why = (
            f"{password_key} does not open it, or it is no PKCS12 file"
            if password
            else f"it is no PKCS12 file, or it has a password and {password_key} is not set"
        )
        raise KeyMaterialUnusable(where, why, remedy=f"Check password and file. {_AGAIN}") from None
    except Exception as error:  # an algorithm that the library does not have is an exception of its own
        raise KeyMaterialUnusable(
            where,
            f"it cannot be read ({type(error).__name__})",
            remedy="Create it again with a current keytool or openssl: old files use algorithms that are gone.",
        ) from None
