"""The six places that tell why a topic is not copied: log, status, ``/v1``, Connect's status, metrics and alerts.

``TOLD`` has what each place tells of a reason. ``Scene`` runs a worker and asks all six. The reasons themselves are
those of ``mm2py/status/not_copied.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from deploy.local.kafka import KafkaCluster
from deploy.local.prometheus import Prometheus
from tests.cluster.copies import make_topic, now_ms
from tests.cluster.kafka_client import new_name, record_count, write
from tests.cluster.rest.serving import Asked, asked
from tests.cluster.running import ANSWER_S, PATIENCE, Event, Mm2py, Value, one_way_properties, wait_until
from tests.cluster.why_table import wait_for_cause

SLOW_S: Final = 90.0 * PATIENCE
FIRST: Final = [b"%d" % number for number in range(10)]
MORE: Final = [b"%d" % number for number in range(10, 35)]
ALERTS: Final = (Path(__file__).parents[2] / "deploy" / "grafana" / "alerts.yaml").read_text()
NOT_RECORDED: Final = frozenset({"standing"})
"""Reasons that ``why --at`` cannot tell: who asks finds them by looking twice."""
RECORDED: Final = frozenset(
    {
        "stopped",
        "record-refused",
        "record-unreadable",
        "source-denied",
        "target-denied",
        "refused",
        "undecided",
        "stalled",
    }
)
"""Reasons that workers record: ``why --at`` says the same. Of others it may know less, but never that it is copied."""
PARTITIONS, TOPICS = "mm2py_flow_not_copied_partitions", "mm2py_flow_not_copied_topics"


def expression_of(alert: str) -> str:
    found = re.search(rf"- alert: {alert}\n +expr: (.+)\n", ALERTS)
    assert found is not None
    return found.group(1)


class Trace(Enum):
    """Whose trace in Connect's status names a topic."""

    NONE = "no trace: it is no problem"
    CONNECTOR = "the connector's: no task has it"
    TASK = "that of the task that has it, which goes on with the others"
    FAILED_TASK = "that of its task, which is FAILED: a task of Connect would have failed as well"


@dataclass(frozen=True, slots=True)
class Told:
    """What the places tell of a reason, but ``/v1``: that tells every reason with the topic."""

    logged: str
    """An event with this reason; empty: the log has no line of it."""
    problem: str = ""
    """The kind of the status's problem; empty: it is none."""
    is_since: bool = True
    """It is told since when."""
    trace: Trace = Trace.NONE
    series: str = ""
    """The metric that counts it by ``reason``; empty: none does."""
    alert: str = ""
    """The alert that has a series; empty: no operator has to be woken."""


TOLD: Final[Mapping[str, Told]] = {
    "stopped": Told("source.expired", "gap", True, Trace.FAILED_TASK, PARTITIONS, "Mm2pyPartitionsStopped"),
    "record-refused": Told("source.too_large", "not-copied", True, Trace.FAILED_TASK, PARTITIONS, "Mm2pyNotCopied"),
    "record-unreadable": Told(
        "source.crc_mismatch", "not-copied", True, Trace.FAILED_TASK, PARTITIONS, "Mm2pyNotCopied"
    ),
    "source-denied": Told("source.denied", "not-copied", True, Trace.FAILED_TASK, PARTITIONS, "Mm2pyNotCopied"),
    "target-denied": Told("target.denied", "not-copied", True, Trace.FAILED_TASK, PARTITIONS, "Mm2pyNotCopied"),
    "refused": Told("topic.refused", "not-copied", True, Trace.CONNECTOR, TOPICS, "Mm2pyTopicsRefused"),
    "missing": Told("topic.missing", "not-copied", True, Trace.CONNECTOR, TOPICS, "Mm2pyTopicsMissing"),
    "undecided": Told("topic.refused", "not-copied", True, Trace.CONNECTOR, TOPICS, "Mm2pyTopicsMissing"),
    "stalled": Told("partition.stalled", "not-copied", True, Trace.TASK, PARTITIONS, "Mm2pyPartitionsStalled"),
    "standing": Told("", "not-copied", True, Trace.TASK, "", "Mm2pyNoWorker"),
    "no-leader": Told("partitions.waiting", series=PARTITIONS),
    "position-unstored": Told("partitions.waiting", series=PARTITIONS),
    "retrying": Told("partitions.waiting", series=PARTITIONS),
    "starting": Told("partitions.waiting", series=PARTITIONS),
    "moving": Told("", is_since=False),
    "new": Told("", is_since=False),
    "gone": Told("", is_since=False),
    "deselected": Told("", is_since=False),
    "backfill": Told("", is_since=False),
    "paused": Told("topic.paused", series=PARTITIONS, alert="Mm2pyTopicsPaused"),
}


@dataclass(frozen=True, slots=True)
class Look:
    """What ``mm2py status`` has said of a flow once, for programs and for people."""

    code: int
    found: Any
    text: str
    flow: Any

    def topic(self, topic: str) -> Any:
        return next((one for one in self.flow["topics"] if one["topic"] == topic), None)

    def problems(self, topic: str) -> list[Any]:
        """Return the problems that are about a topic, or about a partition of it."""
        return [one for one in self.found["problems"] if topic in one["where"]]


@dataclass(slots=True)
class Scene:
    """One worker of a flow between two clusters, and everybody who asks about it."""

    source: KafkaCluster
    target: KafkaCluster
    extra: Mapping[str, Value] = field(default_factory=dict)
    """Further properties; ``{alias}``, ``{flow}``, ``{stem}`` stand for those of the scene, ``{source}`` for its
    address."""
    topics: tuple[str, ...] = ()
    """Entries of ``topics`` behind the first, which matches what ``topic`` makes; ``{stem}`` is in all names."""
    stem: str = ""
    alias: str = ""
    run: Mm2py = field(init=False)
    rest: Asked = field(init=False)
    prometheus: Prometheus = field(init=False)

    def __post_init__(self) -> None:
        self.stem = new_name("seen")
        self.alias = new_name("N").replace("-", "")
        own = [entry.format(stem=self.stem) for entry in self.topics]
        settings: dict[str, Value] = {
            f"{self.flow}.topics": ",".join([f"{self.stem}-t.*", *own]),
            "config.storage.replication.factor": 1,
            "sync.topic.acls.enabled": False,
            "sync.topic.configs.enabled": False,
            "stall.timeout.ms": 5000,
            "refresh.topics.interval.seconds": 5,
            "listeners": "http://127.0.0.1:0",
            **{self._told(key): self._told(value) for key, value in self.extra.items()},
        }
        self.run = Mm2py(one_way_properties(self.source, self.target, names=(self.alias, "B"), **settings))

    @property
    def flow(self) -> str:
        return f"{self.alias}->B"

    def _told(self, text: Value) -> Any:
        names = {"alias": self.alias, "flow": self.flow, "stem": self.stem, "source": self.source.bootstrap}
        return text.format(**names) if isinstance(text, str) else text

    def topic(self, name: str, records: list[bytes] = FIRST) -> str:
        """Make a topic of the flow, with records, and return its name."""
        topic = f"{self.stem}-t-{name}"
        make_topic(self.source, topic, 1)
        write(self.source, topic, records)
        return topic

    def remote(self, topic: str) -> str:
        return f"{self.alias}.{topic}"

    def copied(self, topic: str, count: int) -> None:
        self.run.wait_until(
            lambda: record_count(self.target, self.remote(topic)) == count, f"{topic} is copied", deadline_s=SLOW_S
        )

    @contextmanager
    def running(self) -> Iterator[Scene]:
        """Run the worker, once a first topic is copied, with who scrapes it."""
        first = self.topic("first")
        with self.run:
            self.rest = asked(self.run, self.flow)
            self.copied(first, len(FIRST))
            with Prometheus([self.rest.address.removeprefix("http://")], {}) as prometheus:
                self.prometheus = prometheus
                yield self

    # The six places

    def look(self) -> Look:
        """Ask ``mm2py status`` for both kinds of readers."""
        with ThreadPoolExecutor() as both:
            text, told = both.submit(self.run.status_text), both.submit(self.run.status)
            (code, shown), (same, found) = text.result(ANSWER_S), told.result(ANSWER_S)
        assert code == same, (shown, found["problems"])
        return Look(code, found, shown, next(one for one in found["flows"] if one["flow"] == self.flow))

    def in_v1(self, topic: str) -> Any:
        items = self.rest.told("GET", f"/v1/flows/{self.flow}/topics?limit=1000", 200)["items"]
        return next((one for one in items if one["topic"] == topic), None)

    def in_connect(self) -> Any:
        return self.rest.told("GET", f"{self.rest.connector()}/status", 200)

    def trace_of(self, topic: str) -> Trace:
        """Return whose trace in Connect's status names a topic."""
        found = self.in_connect()
        states = [task["state"] for task in found["tasks"] if topic in (task.get("trace") or "")]
        if states:
            return Trace.FAILED_TASK if states == ["FAILED"] else Trace.TASK
        return Trace.CONNECTOR if topic in (found["connector"].get("trace") or "") else Trace.NONE

    def metric(self, name: str, **labels: str) -> list[float]:
        wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
        return [float(one["value"][1]) for one in self.prometheus.query(f"{name}{{{wanted}}}")]

    def lags(self, topic: str) -> list[float]:
        """Return what the metrics say of the records that wait in a topic; none where that is not known."""
        return self.metric("mm2py_lag_records", flow=self.flow, topic=topic)

    def alerts(self) -> set[str]:
        """Return the alerts that have a series about the flow, or about its group."""
        found = set()
        for alert in re.findall(r"- alert: (\w+)", ALERTS):
            series = self.prometheus.query(expression_of(alert))
            if any(one["metric"].get("flow", self.flow) == self.flow for one in series):
                found.add(alert)
        return found

    def wait_for_v1(self, topic: str, reason: str) -> Any:
        """Wait until ``/v1`` tells this reason before others, and return what it tells."""

        found: list[Any] = []

        def told() -> bool:
            found[:] = [self.in_v1(topic)]
            return found[0] is not None and found[0]["reason"] == reason

        try:
            wait_until(told, f"/v1 says {reason} of {topic}", deadline_s=SLOW_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; it said {found}") from None
        assert not found[0]["is_copied"] and found[0]["why"], found
        return found[0]

    def says(
        self,
        topic: str,
        reason: str,
        *,
        told: Told | None = None,
        look: Look | None = None,
        lag: float | None = None,
        cause: str = "",
    ) -> None:
        """Assert that all six places tell this reason of a topic.

        Args:
            cause: the row of docs/why.md that ``why`` has to tell as well; empty: not this test.
            told: what they tell, where that is not what ``TOLD`` has.
            look: what the status said when ``/v1`` told the reason already; None: it is asked.
            lag: how many records wait, where that is known.
        """
        told = told or TOLD[reason]
        self.wait_for_v1(topic, reason)
        self._why_says(topic, reason)
        if cause:
            self.why_tells(cause, topic)
        self._status_says(topic, reason, told, look or self.look())
        wait_until(lambda: self.trace_of(topic) is told.trace, f"Connect tells it: {self.in_connect()}")
        if told.series:
            wait_until(lambda: sum(self.metric(told.series, flow=self.flow, reason=reason)) > 0, "it counts")
        if not told.problem:  # nothing waits in a topic that was just deselected, until it is ended
            wait_until(lambda: 0 not in self.lags(topic), f"{topic} has no lag of 0")
        lags = self.lags(topic)
        assert 0 not in lags and (lag is None or lags in ([], [lag])), f"a lag is true, or there is none: {lags}"
        if told.alert:
            wait_until(lambda: told.alert in self.alerts(), f"{told.alert} has a series")
        if told.logged:
            self.in_log(told.logged, topic=topic, reason=reason)

    def why_tells(self, cause: str, topic: str) -> None:
        """Assert that ``why`` tells this cause of docs/why.md, and that the topic is not replicated, or not all."""
        answer = wait_for_cause(cause, lambda: self.rest.told("GET", f"/v1/flows/{self.flow}/why?topic={topic}", 200))
        assert answer["replicated"] in ("no", "partly") and answer["exit_code"] == 3, answer

    def _why_says(self, topic: str, reason: str) -> None:
        """Ask why the topic is not replicated: the same reason, and that it is not."""
        answer: dict[str, Any] = {}

        def told() -> bool:
            answer.update(self.rest.told("GET", f"/v1/flows/{self.flow}/why?topic={topic}", 200))
            return bool(answer["reason"] == reason)

        wait_until(told, f"why says {reason} of {topic}", deadline_s=SLOW_S)
        assert answer["replicated"] in ("no", "partly") and answer["exit_code"] == 3, answer
        assert answer["why"] and answer["why"] in answer["text"] and answer["remedy"] in answer["text"], answer
        if reason in NOT_RECORDED:
            return

        def told_of_then() -> bool:
            path = f"/v1/flows/{self.flow}/why?topic={topic}&at={now_ms()}"
            answer.update(self.rest.told("GET", path, 200))
            return answer["reason"] == reason if reason in RECORDED else answer["replicated"] != "yes"

        wait_until(told_of_then, f"why says {reason} of the moment before", deadline_s=SLOW_S)
        assert answer["replicated"] != "yes" and answer["exit_code"] != 0, answer

    def in_log(self, event: str, **fields: Any) -> Event:
        found = self.run.wait_for_event(event, deadline_s=SLOW_S, **fields)
        assert found["why"], found
        return found

    def _status_says(self, topic: str, reason: str, told: Told, look: Look) -> None:
        (said, *_) = [one for one in look.topic(topic)["not_copied"] if one["reason"] == reason]
        assert said["why"] and bool(said["since_ms"]) == told.is_since, said
        assert said["waits_for_operator"] == bool(told.problem), said
        (row,) = re.findall(rf"^{re.escape(topic)}  .*$", look.text, re.MULTILINE)
        assert (reason if reason != "stopped" else "open gap") in row, row
        problems = look.problems(topic)
        assert [one["kind"] for one in problems] == ([told.problem] if told.problem else []), problems
        for problem in problems:
            assert look.code == 3 and problem["text"][:80] in look.text, (look.code, problem, look.text)

    def is_copied(self, topic: str) -> None:
        """Wait until ``/v1`` says that all of a topic is copied."""
        wait_until(lambda: (self.in_v1(topic) or {}).get("is_copied"), f"/v1: {topic} is copied", deadline_s=SLOW_S)

    def is_silent_about(self, topic: str, reason: str) -> None:
        def over() -> bool:
            found = self.in_v1(topic)
            return found is None or all(one["reason"] != reason for one in found["not_copied"])

        wait_until(over, f"nothing says {reason} of {topic} any more", deadline_s=SLOW_S)
