"""The scene of a fault with several workers, which share the load of ``scene.py``.

    with SharedScene(pair, "leader") as scene:
        scene.group.leader.signal(signal.SIGSTOP)
        scene.wait_until_all_grow()
        scene.conclude()

``conclude`` judges as that of ``Scene`` does, and also the control log: records by a worker that no longer led have had
no effect on readers (I8).
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.group.membership import GroupState
from mm2py.records.control_record import Evicted
from tests.checker.committed import judge_transactions
from tests.cluster.copies import COPY_DEADLINE_S, bounds_of
from tests.cluster.groups import Group
from tests.cluster.kafka_client import new_name
from tests.cluster.loads import PARTITIONS, Loads
from tests.cluster.running import OWN_PATH, PATIENCE, Mm2py, Value, wait_until
from tests.faults.scene import BEGIN_S, OWN_TOPICS, REPLICAS, Pair, three_node_properties

PER_SECOND: Final = 200
SHARED: Final = 2 * PARTITIONS
"""Partitions that the workers share."""
SESSION_S: Final = 3.0 * PATIENCE
"""The default, unless the machine is busy."""


class SharedScene:
    """Workers of one group that copy two topics under load; all end with the ``with`` block.

    Args:
        stem: the start of its topics' names.
        workers: how many start, with the same file.
        also: a pattern of further topics that the flow copies.
        properties: further ones of that file.
    """

    def __init__(
        self,
        pair: Pair,
        stem: str,
        *,
        workers: int = 3,
        also: str | None = None,
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        self.pair = pair
        self.loads = Loads(pair.source, new_name(stem), per_second=PER_SECOND, replicas=REPLICAS)
        topics: dict[str, Value] = {"A->B.topics": ",".join([*self.loads.topics, *([also] if also else [])])}
        session: dict[str, Value] = {"B.session.timeout.ms": int(SESSION_S * 1000)}
        file = three_node_properties(pair.source, pair.target, **{**topics, **session, **(properties or {})})
        self.group = Group(pair.target, file, workers=0)
        self._first = workers
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.group)
            for _ in range(self._first):
                self.group.start_another()
            self.loads.__enter__()
            stack.callback(self._end_loads, quietly=True)
            if self._first:
                self.wait_until_assigned()
                self.wait_until_all_grow()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    @property
    def workers(self) -> list[Mm2py]:
        return self.group.workers

    @property
    def follower(self) -> Mm2py:
        """Return a worker that does not lead."""
        leader = self.group.leader
        return next(worker for worker in self.workers if worker is not leader and worker.alive)

    def wait_until_assigned(self, *, among: int | None = None) -> None:
        """Wait until every partition has an owner that may copy, and every worker copies some."""
        self.group.wait_until_assigned(SHARED, among=among, deadline_s=BEGIN_S)

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the present ends of the remote partitions."""
        return {
            (topic, number): bounds.end
            for topic in self.loads.topics
            for number, bounds in bounds_of(self.pair.target, f"A.{topic}", range(PARTITIONS)).items()
        }

    def wait_until_all_grow(self, *, deadline_s: float = COPY_DEADLINE_S) -> float:
        """Wait until each remote partition has newer records than now, and return how long it took, in seconds."""
        begun_s = time.monotonic()
        before: dict[tuple[str, int], int] = {}
        still: set[tuple[str, int]] = set()

        def grown() -> bool:
            with suppress(Exception):  # the target may be about to come back
                now = self.ends()
                if not before:
                    before.update(now)
                    still.update(now)
                still.difference_update({at for at in still if now[at] > before[at]})
            return bool(before) and not still

        try:
            wait_until(grown, "every partition is copied", deadline_s=deadline_s)
        except AssertionError as error:
            error.add_note(f"not copied: {sorted(still)}")
            raise
        return time.monotonic() - begun_s

    # Judging

    def evicted(self) -> list[str]:
        """Return the evicted members, in that order."""
        return [str(record.dead) for record in self.group.records(Evicted) if isinstance(record, Evicted)]

    def conclude(self, *, crashes: bool = False, ends_well: bool = True) -> None:
        """End the load and judge. All brokers run again by then.

        Args:
            crashes: the test has planted a defect, so flows may have restarted.
            ends_well: all running workers are asked to stop, and must do so in order.
        """
        alive = [worker for worker in self.workers if worker.alive]
        self.judge_copies(alive[0])
        assert_led_by_one(self.group)
        for worker in alive if ends_well else []:
            assert worker.terminate() == 0, worker.tail()
        for worker in self.workers:
            assert crashes or not worker.events("flow.crashed"), worker.tail()
            assert not worker.events("flow.refused"), worker.tail()

    def judge_copies(self, run: Mm2py) -> None:
        """End the load and judge the copy once it is complete; ``run`` is a healthy worker."""
        self._end_loads()
        self.loads.assert_copied(self.pair.target, run, max_rewinds=0)
        self.loads.assert_ledgers(self.pair.target, run)
        topics = [*(f"A.{topic}" for topic in self.loads.topics), *OWN_TOPICS]
        found = judge_transactions(self.pair.target.internal_bootstrap, topics, wait_s=COPY_DEADLINE_S)
        assert not found, "\n".join(str(finding) for finding in found)
        listed = [gap for gap in run.gaps("--all")[1] if gap["topic"] in self.loads.topics]
        assert not listed, f"gaps: {listed}"

    def _end_loads(self, *, quietly: bool = False) -> None:
        with suppress(*[Exception] if quietly else []):  # a load that failed after its test hides nothing
            self.loads.__exit__(None, None, None)


def assert_led_by_one(group: Group) -> None:
    """I8: leader epochs only grow, each has one leader, and every reader ignores records of an older epoch."""
    all_of_it, without = GroupState(), GroupState()
    epochs: dict[int, str] = {}
    for entry in group.entries():
        epoch = getattr(entry.record, "leader_epoch", None)
        is_late = epoch is not None and all_of_it.leader is not None and epoch < all_of_it.leader_epoch
        before = all_of_it.leader_epoch
        all_of_it.take(entry)
        if not is_late:
            without.take(entry)
        assert all_of_it.leader_epoch >= before, f"the leader epoch went back at {entry.offset}"
        if all_of_it.leader is not None:
            leader = epochs.setdefault(all_of_it.leader_epoch, str(all_of_it.leader))
            assert leader == all_of_it.leader, f"epoch {all_of_it.leader_epoch} had two leaders"
        assert all_of_it.owners == without.owners, f"a previous leader had an effect at {entry.offset}"
        assert all_of_it.to_fence.keys() == without.to_fence.keys(), (
            f"a previous leader evicted a member at {entry.offset}"
        )


# Faults within one process


class Failpoint:
    """Causes a fault within one process that was started with ``environment``; see ``failpoint/sitecustomize.py``."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=folder))
        path = os.pathsep.join([str(Path(__file__).parent / "failpoint"), OWN_PATH])
        self.environment = {"PYTHONPATH": path, "MM2PY_FAILPOINT": str(self._folder)}

    def set_clocks(self, *, wall_s: float = 0.0, boot_s: float = 0.0) -> None:
        """Move the clocks of the process that far ahead, from now on."""
        new = self._folder / "new"
        new.write_text(f"{wall_s} {boot_s}")
        new.replace(self._folder / "clocks")

    def strike(self, run: Mm2py, what: str) -> None:
        """Cause ``block SECONDS``, ``fill BYTES`` or ``raise`` in the process."""
        (self._folder / "strike").write_text(what)
        run.signal(signal.SIGUSR1)


@contextmanager
def limited(run: Mm2py, controller: str, limits: Mapping[str, int]) -> Iterator[None]:
    """Put a process under the limits of a control group while the ``with`` block lasts; skip where that is not allowed.

    Args:
        controller: ``cpu`` or ``memory``, of the first version of control groups.
    """
    folder = Path("/sys/fs/cgroup") / controller / new_name("mm2py-test")
    try:
        folder.mkdir()
        for name, value in limits.items():
            (folder / name).write_text(str(value))
        (folder / "cgroup.procs").write_text(str(run.pid))
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"this machine allows no control group of {controller}: {error}")
    try:
        yield
    finally:
        with suppress(OSError):  # it may have ended
            (folder.parent / "cgroup.procs").write_text(str(run.pid))
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), "nothing is left in the control group")
        folder.rmdir()


def cluster_of(pair: Pair, side: str) -> KafkaCluster:
    found: KafkaCluster = getattr(pair, side)
    return found


def cpu_s(run: Mm2py) -> float:
    """Return how much CPU time a process has used, in seconds."""
    fields: list[Any] = Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
