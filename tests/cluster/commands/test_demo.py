"""`make demo` as its users run it: a process without a terminal that ends by itself, or by Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deploy.local.demo_samples import SAMPLES
from deploy.local.guardian import guard
from tests.cluster.running import PATIENCE, wait_until

ROOT = Path(__file__).parents[3]
ENDS_S = 300.0 * PATIENCE
"""CI has neighbours; alone it takes about ten seconds beside the traffic."""
TOPICS = [(alias, sample.topic) for alias, samples in SAMPLES.items() for sample in samples]


@contextmanager
def demo(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the demo with ``directory`` for its temporary files; it is killed with the block if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "deploy.local.demo", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(directory), **guard().environment()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory for temporary files with a short name: a demo that leaves none leaves this one empty."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


def processes_in(directory: Path) -> list[str]:
    """Return the command lines that mention the directory: brokers log and keep their data there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended meanwhile
            if str(directory) in command:
                found.append(command)
    return found


def files_in(directory: Path) -> list[str]:
    """Return what is left, but for the lock files of ports that all starters on a machine share."""
    return [entry.name for entry in directory.iterdir() if not entry.name.startswith("mm2py-ports-")]


def wait_until_shown(process: subprocess.Popen[str]) -> None:
    """Read until the demo has printed a line of its table, and where its page is or that it is not built."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        words = " ".join(text.split())
        if "records/s" in words and ("/#once=" in words or "`make page`" in words):
            return
    raise AssertionError(f"it ended without a table, or without a word of the page:\n{text}")


def test_a_demo_of_a_few_seconds_finds_both_sides_equal_and_leaves_nothing(directory: Path) -> None:
    with demo(directory, "--seconds", "12") as process:
        text, _ = process.communicate(timeout=ENDS_S)
    assert process.returncode == 0, text
    for _, topic in TOPICS:
        copied = re.findall(rf"\b{topic} +([\d,]+) ", text)
        assert copied, f"{topic} is not in the table:\n{text}"
        assert int(copied[-1].replace(",", "")) > 0, text
    compacted = [row for row in text.splitlines() if re.search(r"\b(accounts|prices) ", row)]
    assert any("offset gaps" in row for row in compacted), text
    first, second = SAMPLES
    for flow in (f"{first}->{second}", f"{second}->{first}"):
        assert re.search(rf"last heartbeats: .*{flow} [\d.]+ s ago, took [\d,]+ ms", text), text
    assert f"Both sides are equal in all {len(TOPICS)} topics" in text
    assert "on west-2 at the exact record in all 2 partitions: none skipped, none read again." in text
    assert files_in(directory) == []
    assert processes_in(directory) == []


def test_ctrl_c_in_the_middle_drains_and_leaves_nothing(directory: Path) -> None:
    with demo(directory) as process:
        wait_until_shown(process)
        assert processes_in(directory)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=ENDS_S)
    assert process.returncode == 0, text
    assert "mm2py has drained" in text
    assert files_in(directory) == []
    assert processes_in(directory) == []


@pytest.mark.slow
def test_a_demo_that_was_to_compare_and_was_stopped_does_not_succeed(directory: Path) -> None:
    with demo(directory, "--seconds", "300") as process:
        wait_until_shown(process)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=ENDS_S)
    assert process.returncode == 130, text
    assert "Comparing" not in text


@pytest.mark.slow
def test_a_second_ctrl_c_ends_it_at_once_and_still_leaves_nothing(directory: Path) -> None:
    with demo(directory) as process:
        wait_until_shown(process)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=ENDS_S)
    assert process.returncode in {0, 130}  # 0: it was faster than the second signal
    wait_until(lambda: not files_in(directory) and not processes_in(directory), "the guardian has cleaned up after it")
