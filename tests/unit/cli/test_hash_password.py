"""``mm2py hash-password``: a password goes in by standard input, and only its hash comes out."""

from __future__ import annotations

import io
import sys

import pytest

from mm2py.cli import main as cli
from mm2py.errors import ConfigError
from mm2py.secret import Secret
from mm2py_rest.access.hashes import parse_password_hash, parse_token_hash, token_digest


def run(monkeypatch: pytest.MonkeyPatch, text: str, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return cli.run(["hash-password", *arguments])


def test_what_is_printed_is_the_hash_of_the_password_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "canary word\n") == 0
    printed = capsys.readouterr()
    assert "canary" not in printed.out + printed.err
    assert parse_password_hash(printed.out.strip()).matches(Secret("canary word"))


def test_a_token_has_a_hash_of_its_own_kind_and_is_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "c" * 64, "--token") == 0
    assert parse_token_hash(capsys.readouterr().out.strip()) == token_digest(Secret("c" * 64))
    with pytest.raises(ConfigError, match="fewer than 32"):
        run(monkeypatch, "short\n", "--token")


def test_nothing_has_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no password"):
        run(monkeypatch, "\n")


@pytest.mark.parametrize("arguments", [["canary"], ["--token", "canary"], ["--token=canary"], ["--canary"]])
def test_a_password_on_the_command_line_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    with pytest.raises(ConfigError, match="Choose another one") as raised:
        run(monkeypatch, "", *arguments)
    assert "canary" not in str(raised.value)
