"""``ssl.cipher.suites`` in Java's names."""

from __future__ import annotations

import ssl

import pytest

from mm2py.kafka.security import tls as cipher_suites
from mm2py.kafka.security.settings import TLS_VERSIONS
from mm2py.kafka.security.tls import TLS13, UnknownSuite, choose


def test_every_known_suite_of_tls_1_2_is_one_that_openssl_has() -> None:
    for name in cipher_suites._TLS12:
        (openssl,), versions = choose([name], TLS_VERSIONS)
        assert versions == ("TLSv1.2",)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_ciphers(openssl)
        assert openssl in {cipher["name"] for cipher in context.get_ciphers()}


def test_a_version_none_of_whose_suites_is_listed_is_not_used() -> None:
    assert choose([*TLS13], TLS_VERSIONS) == ((), ("TLSv1.3",))
    both = [*TLS13, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"]
    assert choose(both, TLS_VERSIONS) == (("ECDHE-RSA-AES256-GCM-SHA384",), TLS_VERSIONS)


@pytest.mark.parametrize(
    ("suites", "versions", "why"),
    [
        (["TLS_RSA_WITH_AES_128_CBC_SHA"], TLS_VERSIONS, "unknown or too weak"),
        (["TLS_RSA_WITH_NULL_SHA"], TLS_VERSIONS, "unknown or too weak"),
        (["ECDHE-RSA-AES256-GCM-SHA384"], TLS_VERSIONS, "unknown or too weak"),
        (["ALL:eNULL"], TLS_VERSIONS, "unknown or too weak"),
        (["TLS_AES_128_GCM_SHA256"], TLS_VERSIONS, "name all three"),
        ([*TLS13], ("TLSv1.2",), "names no suite of TLSv1.2"),
        (["TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"], ("TLSv1.3",), "names no suite of TLSv1.3"),
    ],
)
def test_what_cannot_be_had_is_refused(suites: list[str], versions: tuple[str, ...], why: str) -> None:
    with pytest.raises(UnknownSuite, match=why):
        choose(suites, versions)  # type: ignore[arg-type]
