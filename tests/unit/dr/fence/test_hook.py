"""The operator's command runs without a shell, within its time, and counts as done only with exit code 0."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mm2py.dr.fence.hook import HOOK_TIMEOUT_S, HookFailed, hook_words, run_hook
from mm2py.dr.fence.record import FenceRecord, FenceState, FenceWay
from mm2py.errors import ConfigError

RECORD = FenceRecord("A->B", 1, "m", FenceState.RAISING, FenceWay.HOOK, ("bills", "orders"), by="ann on host")


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def run(words: Sequence[str], verb: str, record: FenceRecord, *, timeout_s: float = HOOK_TIMEOUT_S) -> None:
    """Run it by the machine's own time."""
    asyncio.run(run_hook(words, verb, record, timeout_s=timeout_s))


def test_it_gets_its_own_words_then_the_verb_and_the_topics_as_json(tmp_path: Path) -> None:
    at = tmp_path / "told"
    text = f"import sys, pathlib; pathlib.Path({str(at)!r}).write_text(repr(sys.argv[1:]) + sys.stdin.read())"
    run([*program(text), "$HOME; touch x", "*"], "unfence", RECORD)
    words, brace, rest = at.read_text().partition("{")
    assert words == "['$HOME; touch x', '*', 'unfence']"
    assert json.loads(brace + rest) == {
        "verb": "unfence",
        "flow": "A->B",
        "topics": ["bills", "orders"],
        "by": "ann on host",
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (program("import sys; print('no such port'); sys.exit(7)"), "exit code 7, saying: no such port"),
        (program("import os; os.kill(os.getpid(), 9)"), "exit code -9"),
        (["/nowhere/at/all"], "cannot be started"),
    ],
)
def test_anything_but_exit_code_0_is_no_fence(words: list[str], why: str) -> None:
    with pytest.raises(HookFailed, match=why) as failed:
        run(words, "fence", RECORD)
    assert "dr unfence" in failed.value.remedy


def test_a_command_that_does_not_end_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    at = tmp_path / "child"
    words = ("sh", "-c", f"sleep 600 & echo $! > {shlex.quote(str(at))}; wait")
    with pytest.raises(HookFailed, match="did not end within 3 s"):
        run(words, "fence", RECORD, timeout_s=3.0)
    with contextlib.suppress(ProcessLookupError):  # it has ended, and is forgotten
        child = os.pidfd_open(int(at.read_text()))
        try:
            ended, _, _ = select.select([child], [], [], 60)
        finally:
            os.close(child)
        assert ended, "it still runs"


def test_words_are_split_as_a_shell_does() -> None:
    assert hook_words("close-port 'two words' --now") == ("close-port", "two words", "--now")
    for text in ("", "  ", "'open"):
        with pytest.raises(ConfigError):
            hook_words(text)
