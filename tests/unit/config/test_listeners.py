"""``listeners``: which texts are addresses to listen at, and which are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.config.configuration import load_configuration
from mm2py.config.kinds import BadValue
from mm2py.config.rest import DEFAULT, Listener, RestSettings, listeners
from mm2py.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        (" ", ()),
        ("http://127.0.0.1:8083", (Listener("127.0.0.1", 8083),)),
        ("HTTP://Host.Example:0/", (Listener("Host.Example", 0),)),
        ("http://:8083", (Listener("", 8083),)),
        ("https://[::1]:8443", (Listener("::1", 8443, is_tls=True),)),
        ("http://a:1, https://a:2", (Listener("a", 1), Listener("a", 2, is_tls=True))),
        ("http://a:0, http://b:0", (Listener("a", 0), Listener("b", 0))),
    ],
)
def test_listeners_are_addresses_as_connect_writes_them(text: str, found: tuple[Listener, ...]) -> None:
    assert listeners(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *("8083", "127.0.0.1:8083", "http://a", "http://a:", "ftp://a:1", "http://a:65536", "http://a:1/path"),
        *("http://user@a:1", "http://::1:8083", "http://a:1,,http://b:1", "http://a:1, https://a:1", "http://a:-1"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        listeners(text)


def test_each_worker_of_a_machine_has_the_next_port_and_a_free_one_stays_free() -> None:
    assert [str(Listener("::1", 8083).of_worker(number)) for number in (1, 2)] == [
        "http://[::1]:8083",
        "http://[::1]:8084",
    ]
    assert Listener("a", 0).of_worker(3) == Listener("a", 0)


FILE = "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"


def rest_of(tmp_path: Path, line: str) -> RestSettings:
    path = tmp_path / "mm2.properties"
    path.write_text(FILE + line)
    return load_configuration(path, None).rest


def test_a_file_without_listeners_serves_at_the_port_of_connect_if_it_is_free(tmp_path: Path) -> None:
    assert rest_of(tmp_path, "") == RestSettings(DEFAULT, is_explicit=False)


def test_a_file_may_say_where_to_serve_or_that_nothing_is_served(tmp_path: Path) -> None:
    assert rest_of(tmp_path, "listeners=http://:0\n") == RestSettings((Listener("", 0),), is_explicit=True)
    assert rest_of(tmp_path, "listeners=\n") == RestSettings((), is_explicit=True)


def test_a_wrong_listener_is_a_wrong_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 5: listeners = '8083' is wrong"):
        rest_of(tmp_path, "listeners=8083\n")
