"""Where a worker may be reached, and what it serves there, by its file alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mm2py.config.configuration import load_configuration
from mm2py.config.rest import Exposure, RestSettings
from mm2py.config.settings import Configuration
from mm2py.errors import ConfigError

BASE = "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"
KEY = "listeners.https.ssl.keystore.type=PEM\nlisteners.https.ssl.keystore.location=/k.pem\n"
TRUST = "listeners.https.ssl.truststore.type=PEM\nlisteners.https.ssl.truststore.location=/t.pem\n"
USERS = "rest.users.file=/users\n"
Load = Callable[[str], Configuration]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loaded(lines: str) -> Configuration:
        path = tmp_path / "mm2.properties"
        path.write_text(BASE + lines)
        return load_configuration(path, None)

    return loaded


def exposures(settings: RestSettings) -> list[Exposure]:
    return [settings.exposure(listener) for listener in settings.listeners]


@pytest.mark.parametrize(
    ("lines", "served"),
    [
        ("", Exposure.READERS),
        ("listeners=http://localhost:1", Exposure.READERS),
        ("listeners=http://[::1]:1", Exposure.READERS),
        ("listeners=http://127.9.9.9:1", Exposure.READERS),
        ("rest.anonymous.may=read", Exposure.READERS),
        ("rest.anonymous.may=change", Exposure.EVERYONE),
        (USERS, Exposure.USERS),
        (f"{USERS}rest.anonymous.may=change", Exposure.USERS),
        ("listeners=http://:1\nrest.anonymous.may=change", Exposure.HEALTH),
        ("listeners=http://:1\nrest.insecure=true\nrest.anonymous.may=change", Exposure.EVERYONE),
        ("listeners=http://:1", Exposure.HEALTH),
        ("listeners=http://0.0.0.0:1", Exposure.HEALTH),
        ("listeners=http://[::]:1", Exposure.HEALTH),
        ("listeners=http://mirror.example:1", Exposure.HEALTH),
        ("listeners=http://127.0.0.1.evil.example:1", Exposure.HEALTH),
        (f"listeners=https://:1\n{KEY}", Exposure.HEALTH),
        (f"listeners=http://:1\n{USERS}", Exposure.HEALTH),
        (f"listeners=https://:1\n{KEY}{USERS}", Exposure.USERS),
        ("listeners=http://:1\nrest.insecure=true", Exposure.READERS),
        (f"listeners=http://:1\n{USERS}rest.insecure=true", Exposure.USERS),
        ("listeners=\nadmin.listeners=http://:1", Exposure.PROBES),
    ],
)
def test_beyond_this_machine_all_is_served_only_with_tls_and_users_or_where_the_file_says_insecure(
    load: Load, lines: str, served: Exposure
) -> None:
    """S01."""
    assert exposures(load(lines).rest) == [served]


@pytest.mark.parametrize(
    ("lines", "takes_token"),
    [
        ("", True),
        (USERS, False),
        ("rest.anonymous.may=change", False),
        ("listeners=", False),
        ("listeners=http://:1", False),
        ("listeners=http://:1,http://127.0.0.1:2", True),
    ],
)
def test_a_token_is_made_only_where_a_listener_asks_for_it(load: Load, lines: str, *, takes_token: bool) -> None:
    assert load(lines).rest.takes_token is takes_token


def test_a_file_of_mirrormaker_2_with_internal_rest_starts_serves_the_health_and_says_how_to_open_the_rest(
    load: Load,
) -> None:
    configuration = load("dedicated.mode.enable.internal.rest=true\nlisteners=http://:8083\n")
    assert exposures(configuration.rest) == [Exposure.HEALTH]
    told = "\n".join(configuration.warnings)
    assert (
        "line 6: listeners: other machines can reach http://:8083, so only /health, /live and /ready are served there"
        in told
    )
    assert "rest.users.file" in told and "listeners.https" in told and "rest.insecure" in told
    assert "dedicated.mode.enable.internal.rest" in told


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("listeners=http://:1\nrest.insecure=true", "all who do may read, because rest.insecure is true"),
        ("listeners=http://:1\nrest.insecure=true", "sees the token"),
        ("rest.anonymous.may=change", "every user of this machine may delete offsets and change flows"),
        (
            "listeners=http://:1\nrest.insecure=true\nrest.anonymous.may=change",
            "every machine that reaches it may delete offsets and change flows",
        ),
        (f"listeners=http://:1\n{USERS}rest.insecure=true", "sees passwords"),
        (f"listeners=https://:1\n{KEY}listeners.https.ssl.keystor=x", "is not known"),
    ],
)
def test_what_is_open_too_far_or_does_nothing_is_told(load: Load, lines: str, told: str) -> None:
    assert any(told in warning for warning in load(lines).warnings)


@pytest.mark.parametrize(
    "lines", ["", "rest.token.file=/t", f"listeners=https://:1\n{KEY}{USERS}", f"{USERS}rest.hosts=a.example"]
)
def test_what_is_safe_is_not_warned_of(load: Load, lines: str) -> None:
    assert load(lines).warnings == ()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("listeners=https://:1", "line 5: listeners has https, and no certificate"),
        ("listeners=\nadmin.listeners=https://:1", "admin.listeners has https, and no certificate"),
        (f"listeners=https://:1\n{KEY}listeners.https.ssl.client.auth=required", "nothing says whose are good"),
        (f"listeners=https://:1\n{KEY}listeners.https.ssl.client.auth=maybe", "not one of none, requested, required"),
        (f"listeners=https://:1\n{KEY}listeners.https.ssl.enabled.protocols=TLSv1.1", "never speaks"),
        ("listeners=http://:1\nadmin.listeners=http://:1", "has an address that listeners has, too"),
        ("admin.listeners=nonsense", "write http://host:port"),
        ("rest.hosts=http://a.example", "without a port"),
        ("rest.insecure=yes", "neither true nor false"),
        ("rest.anonymous.may=write", "not one of read, change"),
    ],
)
def test_what_cannot_be_served_is_a_problem_of_the_file(load: Load, lines: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"\A(.|\n)*" + problem):
        load(lines)


def test_the_password_of_a_key_store_is_in_no_message(load: Load) -> None:
    with pytest.raises(ConfigError) as raised:
        load("listeners=https://:1\nlisteners.https.ssl.keystore.password=canary")
    assert "canary" not in str(raised.value) and "keystore.password" in str(raised.value)


def test_certificates_come_from_the_prefix_or_from_the_top_of_the_file_as_in_connect(load: Load) -> None:
    top = "ssl.keystore.type=PEM\nssl.keystore.location=/top.pem\nssl.client.auth=none\n"
    tls = load(f"listeners=https://:1\n{top}").rest.tls
    assert tls is not None and tls.settings.keys is not None and str(tls.settings.keys.path) == "/top.pem"
    both = load(f"listeners=https://:1\n{top}{KEY}{TRUST}listeners.https.ssl.client.auth=requested\n").rest
    assert both.tls is not None and both.tls.settings.keys is not None
    assert (str(both.tls.settings.keys.path), both.tls.client_auth) == ("/k.pem", "requested")


def test_listeners_for_probes_have_certificates_of_their_own_or_those_of_listeners(load: Load) -> None:
    lines = f"listeners=http://127.0.0.1:1\nadmin.listeners=https://:2\n{KEY}"
    found = load(lines).rest
    assert found.tls_of(found.listeners[0]) is None
    shared = found.tls_of(found.listeners[1])
    own_lines = "admin.listeners.https.ssl.keystore.type=PEM\nadmin.listeners.https.ssl.keystore.location=/own.pem\n"
    found = load(lines + own_lines).rest
    own = found.tls_of(found.listeners[1])
    assert shared is not None and shared.settings.keys is not None and str(shared.settings.keys.path) == "/k.pem"
    assert own is not None and own.settings.keys is not None and str(own.settings.keys.path) == "/own.pem"
