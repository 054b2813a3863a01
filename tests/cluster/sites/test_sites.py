"""Three sites with two clusters each, linked over 40 to 120 ms, all flows from ``deploy/sites/mm2.properties``.

It takes root, ``ip`` and Go; without them these tests are skipped, and say what is missing. ``make test-sites`` runs
all of them; ``make test`` leaves out what takes minutes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deploy.local.demo_sites import ADDED, CHANGED, HELPER, SitesDemo, play, started
from deploy.local.demo_verdict import DIFFERENT, EQUAL, conclude
from deploy.local.errors import MissingTool
from deploy.local.guardian import guard
from deploy.local.network import NoNamespaces
from deploy.local.site_flows import CLUSTERS, clusters_of, copies_of
from mm2py.flow import ClusterAlias
from tests.cluster.kafka_client import write
from tests.cluster.running import PATIENCE, wait_until

ROOT = Path(__file__).parents[3]
OUTAGE_S = 35.0
"""Longer than sessions (3 s) and than requests may take (30 s)."""
ENDS_S = 120.0 * PATIENCE

pytestmark = pytest.mark.timeout(600 * PATIENCE)


@contextmanager
def sites_or_skip(aliases: Sequence[ClusterAlias]) -> Iterator[SitesDemo]:
    """Three sites with these clusters, not yet with topics or workers."""
    with ExitStack() as stack:
        try:
            made = stack.enter_context(started(print, aliases))
        except (MissingTool, NoNamespaces) as error:
            pytest.skip(f"no sites on this machine: {error}")
        yield made


def test_a_setting_reaches_workers_at_two_sites_and_flows_are_exact_while_a_third_site_is_not_there() -> None:
    here = [*clusters_of("west"), *clusters_of("east")]
    with sites_or_skip(here) as demo:
        demo.make_topics(here)
        with demo.traffic(here, producer=1):
            demo.start_workers("west", "east", HELPER)
            demo.await_copies()
            demo.change_setting()
            demo.await_copies()
        lines, code = conclude(demo.compare_all())
        assert code == EQUAL, lines
        compared = sum(len(copies_of(flow, ["west", "east"])) for flow in demo.flows) + 2
        assert lines[-1].startswith(f"Both sides are equal in all {compared} topics"), "the new topic went two hops"
        assert not [worker.tail() for worker in demo.workers.values() if worker.events("partition.gap")]
        demo.stop_workers(*list(demo.workers))
        # the verdict is not green by itself
        write(demo.clusters[CHANGED.target], f"{CHANGED.source}.{ADDED}", ["foreign"])
        lines, code = conclude(demo.compare([CHANGED]))
        assert code == DIFFERENT
        assert any("DIFFERENT" in line and ADDED in line for line in lines), lines


@pytest.mark.slow
def test_a_site_is_cut_off_another_is_rebuilt_from_nothing_and_all_flows_are_exact() -> None:
    with sites_or_skip(CLUSTERS) as demo:
        lines, code = play(demo, OUTAGE_S, print)
        print("\n".join(lines))
        assert code == EQUAL, lines
        demo.stop_workers(*list(demo.workers))


@contextmanager
def running_demo(directory: Path, *before: str) -> Iterator[subprocess.Popen[str]]:
    """Run the demo as its users do; ``before`` are words before its command."""
    process = subprocess.Popen(
        [*before, sys.executable, "-u", "-m", "deploy.local.demo_sites"],
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


def left_of(directory: Path) -> list[str]:
    """Return the processes that mention the directory, and the files in it but for locks of ports."""
    found = [entry.name for entry in directory.iterdir() if not entry.name.startswith("mm2py-ports-")]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue  # it ended meanwhile
            if f"TMPDIR={directory}\0".encode() in environment:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_that_is_interrupted_leaves_no_process_no_network_and_no_file(number: signal.Signals) -> None:
    """A network without a name lasts as long as a process that is in it, so no process means no network."""
    with tempfile.TemporaryDirectory(prefix="sites-") as name:
        directory = Path(name)
        with running_demo(directory) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if "A worker starts" in line:
                    break
            assert process.poll() is None, process.stdout.read()
            assert left_of(directory)
            process.send_signal(number)
            text, _ = process.communicate(timeout=ENDS_S)
        assert process.returncode == 130, text
        wait_until(lambda: not left_of(directory), "nothing is left")


def test_without_root_the_demo_says_what_is_missing() -> None:
    """Root without the capability is like a user: the kernel refuses a network namespace."""
    with tempfile.TemporaryDirectory(prefix="sites-") as name:
        without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
        with running_demo(Path(name), *without) as process:
            text, _ = process.communicate(timeout=ENDS_S)
        assert process.returncode == 1, text
        assert "No network namespace could be made: Operation not permitted. Run it as root." in text
        assert left_of(Path(name)) == []
