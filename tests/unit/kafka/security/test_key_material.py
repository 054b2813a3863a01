"""Certificates and keys out of PEM and PKCS12; what cannot be used is told without any of its content."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, pkcs12

from deploy.local.certificates import Authority, Certified
from mm2py.kafka.errors import KeyMaterialUnusable
from mm2py.kafka.security.key_material import identity_of, pem_blocks, trusted_certificates
from mm2py.kafka.security.settings import KeyStore, TrustStore
from mm2py.secret import Secret

AUTHORITY, OTHER = Authority("one"), Authority("two")
CLIENT, STRANGER = AUTHORITY.issue("client"), AUTHORITY.issue("stranger")
PATH = Path("/etc/keys/store")
PASSWORD = Secret("canary-password")


def one_line(pem: bytes) -> str:
    """As it is when a properties file continues its lines with backslashes."""
    return pem.decode().replace("\n", "")


@pytest.mark.parametrize("shape", [bytes.decode, one_line, lambda pem: pem.decode().replace("\n", "\r\n  ")])
def test_pem_is_read_in_every_shape_that_a_properties_file_gives_it(shape: object) -> None:
    assert callable(shape)
    trust = TrustStore("PEM", certificates=Secret(shape(AUTHORITY.pem() + OTHER.pem())))
    assert trusted_certificates(trust, None) == [AUTHORITY.certified.certificate, OTHER.certified.certificate]
    keys = KeyStore(
        "PEM", certificate_chain=Secret(shape(CLIENT.certificate_pem())), key=Secret(shape(CLIENT.key_pem()))
    )
    assert identity_of(keys, None).chain == (CLIENT.certificate,)
    locked = KeyStore(
        "PEM",
        certificate_chain=Secret(shape(CLIENT.certificate_pem())),
        key=Secret(shape(CLIENT.key_pem("canary-password"))),
        key_password=PASSWORD,
    )
    assert identity_of(locked, None).pem() == identity_of(keys, None).pem()


def test_a_traditional_encrypted_key_keeps_its_headers() -> None:
    key = CLIENT.key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"canary-password")
    )
    keys = KeyStore("PEM", PATH, key_password=PASSWORD)
    assert identity_of(keys, key + CLIENT.certificate_pem()).chain == (CLIENT.certificate,)


def test_our_own_certificate_comes_first_wherever_it_stands() -> None:
    content = AUTHORITY.pem() + CLIENT.pem()
    assert identity_of(KeyStore("PEM", PATH), content).chain == (CLIENT.certificate, AUTHORITY.certified.certificate)


@pytest.mark.parametrize("stated", ["PKCS12", "JKS"])
def test_pkcs12_is_read_under_both_types_that_java_reads_it_under(stated: Literal["PKCS12", "JKS"]) -> None:
    store = KeyStore(stated, PATH, PASSWORD)
    assert identity_of(store, CLIENT.pkcs12("canary-password")).chain == (CLIENT.certificate,)
    chain = pkcs12.serialize_key_and_certificates(
        b"k",
        CLIENT.key,
        CLIENT.certificate,
        [AUTHORITY.certified.certificate],
        BestAvailableEncryption(b"canary-password"),
    )
    assert len(identity_of(store, chain).chain) == 2
    trust = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(each.certified.certificate, each_name) for each, each_name in
         ((AUTHORITY, b"one"), (OTHER, b"two"))],
        BestAvailableEncryption(b"canary-password"),
    )  # fmt: skip
    assert len(trusted_certificates(TrustStore(stated, PATH, PASSWORD), trust)) == 2


def damaged(certified: Certified) -> bytes:
    return certified.certificate_pem().replace(b"MII", b"MIJ", 1)


P12 = CLIENT.pkcs12("canary-password")


@pytest.mark.parametrize(
    ("keys", "content", "why"),
    [
        (KeyStore("PEM", PATH), CLIENT.pem("canary-password"), "encrypted, and ssl.key.password is not set"),
        (KeyStore("PEM", PATH, key_password=Secret("canary-x")), CLIENT.pem("y"), "does not open the private key"),
        (KeyStore("PEM", PATH), CLIENT.certificate_pem(), "holds 0 private keys"),
        (KeyStore("PEM", PATH), CLIENT.pem() + STRANGER.key_pem(), "holds 2 private keys"),
        (KeyStore("PEM", PATH), CLIENT.key_pem(), "no certificate is in it"),
        (KeyStore("PEM", PATH), CLIENT.key_pem() + STRANGER.certificate_pem(), "does not belong to the certificate"),
        (KeyStore("PEM", PATH), CLIENT.key_pem() + damaged(CLIENT), "a certificate in it is damaged"),
        (KeyStore("PEM", PATH), b"-----BEGIN PRIVATE KEY-----!canary!-----END PRIVATE KEY-----", "is damaged"),
        (KeyStore("PEM", PATH), P12, "it is not PEM, and its type is set to PEM"),
        (KeyStore("PEM", PATH), b"", "it is not PEM"),
        (KeyStore("PKCS12", PATH, PASSWORD), CLIENT.pem(), "it is PEM, and its type is set to PKCS12"),
        (KeyStore("PKCS12", PATH, Secret("canary-x")), P12, "ssl.keystore.password does not open it"),
        (KeyStore("PKCS12", PATH), P12, "ssl.keystore.password is not set"),
        (KeyStore("PKCS12", PATH, PASSWORD), P12[:-9], "does not open it, or it is no PKCS12 file"),
        (KeyStore("JKS", PATH, PASSWORD), b"\xfe\xed\xfe\xed\0\0\0\2canary", "Java's own old format"),
    ],
)
def test_a_key_store_that_cannot_be_used_is_told(keys: KeyStore, content: bytes, why: str) -> None:
    with pytest.raises(KeyMaterialUnusable) as caught:
        identity_of(keys, content)
    assert why in str(caught.value)
    assert str(caught.value).startswith("/etc/keys/store cannot be used: ")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("trust", "content", "why"),
    [
        (TrustStore("PEM", PATH), CLIENT.key_pem(), "no certificate is in it"),
        (TrustStore("PEM", PATH), b"\xff-----BEGIN ", "it is not text"),
        (TrustStore("PEM", certificates=Secret("canary")), None, "no certificate is in it"),
        (TrustStore("PEM", certificates=Secret(damaged(CLIENT).decode())), None, "is damaged"),
        (TrustStore("JKS", PATH), b"\xfe\xed\xfe\xed", "keytool -importkeystore -srckeystore /etc/keys/store"),
    ],
)
def test_a_trust_store_that_cannot_be_used_is_told(trust: TrustStore, content: bytes | None, why: str) -> None:
    with pytest.raises(KeyMaterialUnusable) as caught:
        trusted_certificates(trust, content)
    assert why in str(caught.value)
    assert "canary" not in str(caught.value)


def test_neither_blocks_nor_identities_show_their_key() -> None:
    (block,) = pem_blocks(CLIENT.key_pem().decode())
    assert "MI" not in repr(block)
    identity = identity_of(KeyStore("PEM", PATH), CLIENT.pem())
    assert "key" not in repr(identity).lower() or "Key" not in repr(identity)
