"""Who changes something, and why: what may be stored of it, and what is shown of a record."""

from __future__ import annotations

import pytest

from mm2py.errors import ConfigError
from mm2py.login import author_here, host_name, login_name
from mm2py.records.author import NAME_MOST, REASON_MOST, UNKNOWN, Author, author_of, checked_reason, with_reason

ANNA = Author("anna", "ops1", "raise topics for team x")


def test_who_changes_something_is_named_with_the_host_and_the_reason() -> None:
    assert with_reason(ANNA.by_command("mm2py apply"), ANNA.reason) == (
        "anna on ops1 (mm2py apply): raise topics for team x"
    )
    assert Author("bob", "vm").by_rest == "bob over REST on worker vm"
    assert with_reason("bob over REST on worker vm", "") == "bob over REST on worker vm"


def test_what_is_written_is_read_again_and_what_is_empty_is_left_out() -> None:
    assert author_of(ANNA.fields) == ANNA
    assert author_of({}) == UNKNOWN and UNKNOWN.fields == {}
    assert Author("anna").fields == {"user": "anna"}


@pytest.mark.parametrize("bad", [None, 7, ["x"], {"x": 1}, True])
def test_a_field_of_another_type_counts_as_absent(bad: object) -> None:
    assert author_of({"user": bad, "host": bad, "reason": bad}) == UNKNOWN


def test_a_record_of_another_writer_steers_no_terminal_and_shows_no_credential() -> None:
    found = author_of({"user": "a\x1b[2J" * 50, "host": "h\u202e\n", "reason": "sasl.password=hunter2"})
    assert len(found.user) <= NAME_MOST and found.user.isprintable() and found.host == "h"
    assert found.reason == "[hidden]"
    assert len(author_of({"reason": "x" * 5_000}).reason) == REASON_MOST


def test_a_reason_is_one_line_of_at_most_two_hundred_characters() -> None:
    assert checked_reason("  für Team x: INC-4711, see https://wiki.example.org/x  ").startswith("für Team x")
    assert checked_reason("") == "" and len(checked_reason("x" * REASON_MOST)) == REASON_MOST
    with pytest.raises(ConfigError, match="The reason has 201 characters"):
        checked_reason("x" * (REASON_MOST + 1))
    for bad in ("two\nlines", "\x1b[2J", "a\u202eb", "a\x00b"):
        with pytest.raises(ConfigError, match="control character"):
            checked_reason(bad)


@pytest.mark.parametrize("text", ["password=hunter2", "new sasl.jaas.config: hunter2", "A.bootstrap.servers = a:1"])
def test_a_reason_that_looks_like_a_credential_or_an_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        checked_reason(text)
    assert "hunter2" not in str(refused.value) and "a:1" not in str(refused.value)


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("no name"), ImportError("pwd")])
def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nameless() -> str:
        raise error

    assert author_here("why") == Author(login_name(), host_name(), "why") and host_name()
    monkeypatch.setattr("mm2py.login.getpass.getuser", nameless)
    assert login_name().isdecimal()
