"""The TLS of a client from its settings: trust, own certificate, versions, suites, host names.

Counterpart: what DefaultSslEngineFactory of Apache Kafka's clients checks when it is configured.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from mm2py.config.layers import Findings, Layer, named
from mm2py.config.row import Key
from mm2py.config.security import keys
from mm2py.kafka.security.settings import (
    JKS_MAGICS,
    KeyStore,
    StoreType,
    TlsSettings,
    TlsVersion,
    TrustStore,
    convert_advice,
)
from mm2py.kafka.security.tls import UnknownSuite, choose


def read_tls(found: Findings, layer: Layer, *, may_skip_host_names: bool = True) -> TlsSettings:
    """Read the settings of one TLS client.

    Args:
        found: reasons against the settings, and warnings, are added to it.
        layer: the client's settings, or the ``ssl`` options of a login module.
        may_skip_host_names: whether the operator may turn the check of host names off.
    """
    versions = cast("tuple[TlsVersion, ...]", found.value(keys.ENABLED_PROTOCOLS, layer))
    ciphers: tuple[str, ...] = ()
    suites = found.value(keys.CIPHER_SUITES, layer)
    if suites:
        try:
            ciphers, versions = choose(suites, versions)
        except UnknownSuite as unknown:
            found.refuse(f"{found.at(keys.CIPHER_SUITES, layer=layer)} {unknown}")
    check_host_names = bool(found.value(keys.ENDPOINT_IDENTIFICATION, layer))
    if not check_host_names:
        where = found.at(keys.ENDPOINT_IDENTIFICATION, layer=layer)
        if may_skip_host_names:
            found.warnings.append(
                f"{named(layer[keys.ENDPOINT_IDENTIFICATION.name])} is blank: host names are not compared with"
                " certificates, so anyone with a trusted certificate can pose as a broker"
            )
        else:
            found.refuse(f"{where} is blank: a token server's name is always compared with its certificate")
    return TlsSettings(_trust(found, layer), _keys(found, layer), check_host_names, versions, ciphers)


def _trust(found: Findings, layer: Layer) -> TrustStore | None:
    kind = cast("StoreType", found.value(keys.TRUSTSTORE_TYPE, layer))
    location = found.value(keys.TRUSTSTORE_LOCATION, layer)
    password = found.value(keys.TRUSTSTORE_PASSWORD, layer)
    certificates = found.value(keys.TRUSTSTORE_CERTIFICATES, layer)
    where = found.at(keys.TRUSTSTORE_CERTIFICATES, layer=layer)
    if certificates:
        if location:
            found.refuse(f"{where} and ssl.truststore.location are both set (keep one of them)")
        if kind != "PEM":
            found.refuse(f"{where} is PEM, and ssl.truststore.type is {kind} (write ssl.truststore.type = PEM)")
    if kind == "PEM" and password:
        found.refuse(
            f"{found.at(keys.TRUSTSTORE_PASSWORD, layer=layer)} opens nothing, as PEM certificates have no"
            " password (remove it)"
        )
    if certificates:
        return TrustStore("PEM", certificates=certificates)
    if not location:
        if password:
            found.refuse(
                f"{found.at(keys.TRUSTSTORE_PASSWORD, layer=layer)} opens nothing: there is no store"
                " (set ssl.truststore.location, or remove it to trust the system's authorities)"
            )
        return None
    path = _path(found, keys.TRUSTSTORE_LOCATION, location, layer)
    return TrustStore(kind, path, password or None)


def _keys(found: Findings, layer: Layer) -> KeyStore | None:
    kind = cast("StoreType", found.value(keys.KEYSTORE_TYPE, layer))
    location = found.value(keys.KEYSTORE_LOCATION, layer)
    password = found.value(keys.KEYSTORE_PASSWORD, layer)
    key, chain = found.value(keys.KEYSTORE_KEY, layer), found.value(keys.KEYSTORE_CERTIFICATE_CHAIN, layer)
    key_password = found.value(keys.KEY_PASSWORD, layer)
    where = found.at(keys.KEYSTORE_KEY, keys.KEYSTORE_CERTIFICATE_CHAIN, layer=layer)
    if key or chain:
        if not (key and chain):
            found.refuse(
                f"{where} needs its counterpart (set both ssl.keystore.key and ssl.keystore.certificate.chain)"
            )
        if location:
            found.refuse(f"{where} and ssl.keystore.location are both set (keep one of them)")
        if kind != "PEM":
            found.refuse(f"{where} is PEM, and ssl.keystore.type is {kind} (write ssl.keystore.type = PEM)")
    if kind == "PEM" and password:
        found.refuse(
            f"{found.at(keys.KEYSTORE_PASSWORD, layer=layer)} opens nothing, as PEM has a password for its"
            " key only (write ssl.key.password)"
        )
    if key and chain:
        return KeyStore("PEM", certificate_chain=chain, key=key, key_password=key_password or None)
    if not location:
        if password or key_password:
            where = found.at(keys.KEYSTORE_PASSWORD, keys.KEY_PASSWORD, layer=layer)
            found.refuse(f"{where} opens nothing: there is no key (set ssl.keystore.location, or remove it)")
        return None
    if kind != "PEM" and key_password and key_password != password:
        found.refuse(
            f"{found.at(keys.KEY_PASSWORD, layer=layer)} differs from ssl.keystore.password, and in PKCS12"
            " one password opens both (remove it)"
        )
    path = _path(found, keys.KEYSTORE_LOCATION, location, layer)
    return KeyStore(kind, path, password or None, key_password=key_password or None)


def _path(found: Findings, key: Key[str | None], location: str, layer: Layer) -> Path:
    path = Path(location)
    try:
        if path.is_file():
            with path.open("rb") as file:
                if file.read(4) in JKS_MAGICS:
                    found.refuse(
                        f"{found.at(key, layer=layer)} names a file in Java's own old format, JKS"
                        f" ({convert_advice(location).rstrip('.')})"
                    )
    except (OSError, ValueError):  # reported when the file is needed, if the error lasts until then
        pass
    return path
