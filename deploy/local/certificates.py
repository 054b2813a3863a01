"""Certificates for brokers and clients on loopback: an authority of one's own, and what it signs.

    authority = Authority()
    broker, client = authority.issue("broker"), authority.issue("client")
    KafkaCluster("secure", listeners={"SSL": "SSL"}, settings=tls_listener("SSL", directory, broker, authority))

As a command it writes ``ca.pem``, ``broker.pem`` and ``client.pem`` into a directory:

    python -m deploy.local.certificates DIRECTORY
"""

import datetime
import ipaddress
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK: tuple[str, ...] = ("localhost", "127.0.0.1")
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate with its key, in the formats of files."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self, password: str | None = None) -> bytes:
        """Return the key as PKCS8, encrypted if there is a password."""
        encryption = BestAvailableEncryption(password.encode()) if password is not None else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def pem(self, password: str | None = None) -> bytes:
        """Return key and certificate one after the other: what Kafka calls a PEM key store."""
        return self.key_pem(password) + self.certificate_pem()

    def pkcs12(self, password: str) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, None, encryption)


class Authority:
    """Signs certificates, its own included."""

    def __init__(self, name: str = "mm2py test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key, valid_days=(-1, 30))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(_signs(), critical=True).add_extension(own, critical=False)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def certified(self) -> Certified:
        return Certified(self._certificate, self._key)

    def pem(self) -> bytes:
        """Return its certificate: what Kafka calls a PEM trust store."""
        return self._certificate.public_bytes(Encoding.PEM)

    def issue(
        self, name: str, hosts: Sequence[str] = LOOPBACK, *, valid_days: tuple[float, float] = (-1, 30)
    ) -> Certified:
        """Sign a certificate for servers and clients.

        Args:
            name: its common name, which Kafka turns into the principal ``User:CN=name``.
            hosts: its names and addresses.
            valid_days: its first and last day, in days from now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        return Certified(self._sign(_builder(_named(name), self._name, key, valid_days), hosts), key)

    def _sign(self, builder: x509.CertificateBuilder, hosts: Sequence[str]) -> x509.Certificate:
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(uses, critical=False).add_extension(_names(hosts), critical=False)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(signer, critical=False)  # Python 3.13 requires these by default
        return builder.sign(self._key, hashes.SHA256())


def _signs() -> x509.KeyUsage:
    """Return what an authority uses its key for: to sign certificates."""
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def self_signed(name: str, hosts: Sequence[str] = LOOPBACK) -> Certified:
    """Return a certificate that is signed only by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_named(name), _named(name), key, valid_days=(-1, 30)).add_extension(
        _names(hosts), critical=False
    )
    return Certified(builder.sign(key, hashes.SHA256()), key)


def tls_listener(
    listener: str,
    directory: Path,
    broker: Certified,
    authority: Authority,
    *,
    client_certificates: bool = False,
    versions: str = "TLSv1.2,TLSv1.3",
) -> Mapping[str, str]:
    """Write the files of one TLS listener into ``directory``, and return its broker settings."""
    keys, trust = directory / f"{listener.lower()}.pem", directory / f"{listener.lower()}-ca.pem"
    write_private(keys, broker.pem())
    write_private(trust, authority.pem())
    prefix = f"listener.name.{listener.lower()}.ssl"
    return {
        f"{prefix}.keystore.type": "PEM",
        f"{prefix}.keystore.location": str(keys),
        f"{prefix}.truststore.type": "PEM",
        f"{prefix}.truststore.location": str(trust),
        f"{prefix}.client.auth": "required" if client_certificates else "none",
        f"{prefix}.enabled.protocols": versions,
    }


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner may read, in one step, and return its name."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    beside.rename(path)
    return path


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid_days: tuple[float, float]
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid_days[0] * DAY)
        .not_valid_after(now + valid_days[1] * DAY)
    )


def _names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_general_name(host) for host in hosts])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass(frozen=True, slots=True)
class Files:
    """The three files of a test's authority, broker and client."""

    authority: Path
    broker: Path
    client: Path

    @classmethod
    def write(cls, directory: Path) -> Self:
        """Create an authority, a broker's and a client's certificate, and write them as PEM."""
        directory.mkdir(parents=True, exist_ok=True)
        authority = Authority()
        return cls(
            write_private(directory / "ca.pem", authority.pem()),
            write_private(directory / "broker.pem", authority.issue("broker").pem()),
            write_private(directory / "client.pem", authority.issue("client").pem()),
        )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    written = Files.write(Path(sys.argv[1]))
    print(written.authority, written.broker, written.client, sep="\n")
