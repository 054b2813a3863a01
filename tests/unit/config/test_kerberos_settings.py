"""``sasl.mechanism=GSSAPI``: what the login module's options and ``sasl.kerberos.*`` come to, and what they refuse."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from deploy.local.broker_settings import render_properties
from mm2py.checks.principal import principal_of
from mm2py.checks.rights import PLACEHOLDER
from mm2py.config.configuration import load_configuration
from mm2py.config.settings import Configuration
from mm2py.flow import parse_flow
from mm2py.kafka.security.settings import KerberosCredential, RefreshSettings, Security

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
KEYTAB = f'{MODULE} useKeyTab=true storeKey=true keyTab="/etc/canary.keytab" principal="mirror/host@REALM";'
CACHE = f"{MODULE} useTicketCache=true;"
GSSAPI = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
    "A->B.enabled": "true",
    "A.security.protocol": "SASL_SSL",
    "A.sasl.mechanism": "GSSAPI",
    "A.sasl.kerberos.service.name": "kafka",
    "A.sasl.jaas.config": KEYTAB,
}
"""``canary`` is in the name of a file, which messages may show."""


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is installed."""
    monkeypatch.setitem(sys.modules, "gssapi", ModuleType("gssapi"))


def load(directory: Path, changed: Mapping[str, str]) -> Configuration:
    path = directory / "mm2.properties"
    path.write_text(render_properties({**GSSAPI, **changed}))
    return load_configuration(path, None)


def security(configuration: Configuration) -> Security:
    assert configuration.refused == {}
    return configuration.flows[0].source.security


def credential(configuration: Configuration) -> KerberosCredential:
    sasl = security(configuration).sasl
    assert sasl is not None and sasl.mechanism == "GSSAPI" and isinstance(sasl.credential, KerberosCredential)
    return sasl.credential


def test_a_keytab_comes_with_kafkas_defaults(tmp_path: Path) -> None:
    loaded = load(tmp_path, {})
    expected = RefreshSettings(0.8, 0.05, min_period_s=60.0, buffer_s=0.0)
    assert credential(loaded) == KerberosCredential(
        "kafka", "mirror/host@REALM", Path("/etc/canary.keytab"), renewal=expected
    )
    assert loaded.warnings == ()
    assert principal_of(security(loaded)) == (PLACEHOLDER, None), "brokers may map names by rules of their own"


def test_every_setting_counts(tmp_path: Path) -> None:
    changed = {
        "A.sasl.kerberos.ticket.renew.window.factor": "0.5",
        "A.sasl.kerberos.ticket.renew.jitter": "0.1",
        "A.sasl.kerberos.min.time.before.relogin": "1500",
        "A.sasl.kerberos.service.name": "",
        "A.sasl.jaas.config": KEYTAB.replace('"/etc', '"FILE:/etc').replace("storeKey", 'serviceName="k" storeKey'),
    }
    found = credential(load(tmp_path, changed))
    assert (found.service, found.keytab) == ("k", Path("/etc/canary.keytab"))
    assert found.renewal == RefreshSettings(0.5, 0.1, min_period_s=1.5, buffer_s=0.0)


def test_a_cache_of_tickets_is_read_again_as_often_as_it_has_to_be(tmp_path: Path) -> None:
    found = credential(load(tmp_path, {"A.sasl.jaas.config": CACHE}))
    assert (found.keytab, found.ticket_cache, found.where) == (None, None, "the system's cache of tickets")
    assert found.renewal.min_period_s == 0
    named = credential(load(tmp_path, {"A.sasl.jaas.config": CACHE.replace(";", ' ticketCache="/run/tickets";')}))
    assert (named.ticket_cache, named.where) == ("/run/tickets", "/run/tickets")


def of(changes: Mapping[str, str]) -> str:
    """Return the login module with some texts replaced."""
    text = KEYTAB
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "no module": ({"A.sasl.jaas.config": ""}, "sasl.jaas.config is not set (write com.sun.security.auth.module.Krb5"),
    "other module": (
        {"A.sasl.jaas.config": KEYTAB.replace("com.sun.", "com.ibm.")},
        "a login module that mm2py does not have (com.ibm.security.auth.module.Krb5LoginModule)",
    ),
    "no service": ({"A.sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name is not set (write"),
    "two services": (
        {"A.sasl.jaas.config": of({"storeKey": 'serviceName="other" storeKey'})},
        "A.sasl.kerberos.service.name (line 7) and serviceName of A.sasl.jaas.config (line 8) differ",
    ),
    "service with host": ({"A.sasl.kerberos.service.name": "kafka/host"}, "is no first part of a principal"),
    "no principal": ({"A.sasl.jaas.config": of({'principal="mirror/host@REALM"': ""})}, "and no principal (write"),
    "any principal": ({"A.sasl.jaas.config": of({"mirror/host@REALM": "*"})}, "principal or file that cannot be one"),
    "no keytab": ({"A.sasl.jaas.config": of({'keyTab="/etc/canary.keytab"': ""})}, "useKeyTab=true and no keyTab"),
    "keytab unused": (
        {"A.sasl.jaas.config": of({"useKeyTab=true": "useTicketCache=true"})}, "a keyTab without useKeyTab=true"),
    "password prompt": (
        {"A.sasl.jaas.config": f"{MODULE} principal=\"a@R\";"}, "neither useKeyTab=true nor useTicketCache=true"),
    "renewal of a cache": (
        {"A.sasl.jaas.config": CACHE.replace(";", " renewTGT=true;")}, "renews no tickets of others (use useKeyTab"),
    "acceptor": ({"A.sasl.jaas.config": of({"storeKey": "isInitiator=false storeKey"})}, "a client has to initiate"),
    "not boolean": ({"A.sasl.jaas.config": of({"storeKey=true": "storeKey=canary"})}, "neither true nor false"),
    "unknown option": ({"A.sasl.jaas.config": of({"storeKey": 'x="canary" storeKey'})}, "do nothing here: number 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused_with_the_way_out(tmp_path: Path, case: str) -> None:
    changed, why = REFUSED[case]
    said = str(load(tmp_path, changed).refused[parse_flow("A->B")])
    assert why in said
    assert "canary" not in said.replace("/etc/canary.keytab", "")


@pytest.mark.parametrize("text", ["nonsense", "1.5", "-1"])
def test_a_wrong_number_is_told_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(Exception, match=r"line 9: A\.sasl\.kerberos\.ticket\.renew\.jitter"):
        load(tmp_path, {"A.sasl.kerberos.ticket.renew.jitter": text})


def test_what_does_nothing_is_named(tmp_path: Path) -> None:
    (debug,) = load(tmp_path, {"A.sasl.jaas.config": of({"storeKey": "debug=true storeKey"})}).warnings
    assert debug == "line 8: A.sasl.jaas.config: options that do nothing here: debug"
    (cache,) = load(tmp_path, {"A.sasl.jaas.config": of({"storeKey": "useTicketCache=true storeKey"})}).warnings
    assert "useTicketCache does nothing beside useKeyTab" in cache
    (kinit,) = load(tmp_path, {"A.sasl.kerberos.kinit.cmd": "/opt/kinit"}).warnings
    assert "A.sasl.kerberos.kinit.cmd" in kinit and "mm2py runs no kinit" in kinit
    (idle,) = load(
        tmp_path, {"A.sasl.jaas.config": CACHE, "A.sasl.kerberos.ticket.renew.window.factor": "0.5"}
    ).warnings
    assert "A.sasl.kerberos.ticket.renew.window.factor does nothing" in idle


def test_without_the_extra_the_flow_is_refused_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    said = str(load(tmp_path, {}).refused[parse_flow("A->B")])
    assert "A.sasl.mechanism (line 6) is GSSAPI, and the package gssapi is not installed" in said
    assert "(pip install 'mm2py[kerberos]')" in said


def test_a_package_without_the_systems_library_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "gssapi.py").write_text("raise ImportError('libgssapi_krb5.so.2: cannot open shared object file')\n")
    monkeypatch.delitem(sys.modules, "gssapi")
    monkeypatch.syspath_prepend(folder)
    said = str(load(tmp_path, {}).refused[parse_flow("A->B")])
    assert "cannot be loaded: libgssapi_krb5.so.2" in said and "apt-get install libgssapi-krb5-2" in said


def test_over_plain_text_the_records_can_be_seen_and_no_secret(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, {"A.security.protocol": "SASL_PLAINTEXT"}).warnings
    assert warning.endswith("anyone who listens on the network sees the records; use SASL_SSL")
