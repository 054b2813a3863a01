"""``mm2py top`` on real brokers: on a terminal of its own, and without one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import new_topic
from tests.cluster.kafka_client import new_name, record_count, values, write
from tests.cluster.running import PATIENCE, Mm2py, one_way_properties, wait_until
from tests.cluster.terminals import OnTerminal

SLOW_S = 90.0 * PATIENCE
FIRST = [b"%d" % number for number in range(10)]
MORE = [b"%d" % number for number in range(10, 35)]


@dataclass(frozen=True)
class Copied:
    """A worker that has copied a topic."""

    source: KafkaCluster
    target: KafkaCluster
    run: Mm2py
    alias: str
    topic: str

    @property
    def flow(self) -> str:
        return f"{self.alias}->B"

    @property
    def remote(self) -> str:
        return f"{self.alias}.{self.topic}"

    @property
    def port(self) -> str:
        return str(self.run.wait_for_event("rest.listening")["at"]).rpartition(":")[2]

    def top(self, *arguments: str, **options: int) -> OnTerminal:
        return OnTerminal("top", str(self.run.file), "--interval", "0.5", *arguments, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def copied(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Copied]:
    alias, topic = new_name("T").replace("-", ""), new_topic(source_cluster, "orders")
    write(source_cluster, topic, FIRST)
    settings = {
        f"{alias}->B.topics": topic,
        "config.storage.replication.factor": 1,
        "listeners": "http://127.0.0.1:0",
    }
    with Mm2py(one_way_properties(source_cluster, target_cluster, names=(alias, "B"), **settings)) as run:
        found = Copied(source_cluster, target_cluster, run, alias, topic)
        run.wait_until(lambda: record_count(target_cluster, found.remote) == len(FIRST), "it is copied")
        yield found


def test_a_topic_is_paused_and_resumed_by_keys_and_the_terminal_is_as_before_at_the_end(copied: Copied) -> None:
    topic = copied.topic
    with copied.top("--port", copied.port) as terminal:
        wait_until(lambda: terminal.row(topic)[-2:] == ["keeps", "up"], "it keeps up", deadline_s=SLOW_S)
        terminal.shows(f"{copied.flow}: safe to fail over", deadline_s=SLOW_S)
        terminal.shows("leader.elected", deadline_s=SLOW_S)  # so REST has told the history
        assert terminal.modes["1049"] and not terminal.is_restored
        terminal.type("pticket 4711\r")
        terminal.shows(f"Pause {topic} of {copied.flow}? y: yes, any other key: no. Reason: ticket 4711")
        terminal.type("y")
        terminal.shows(f"{copied.flow}: {topic} paused.", deadline_s=SLOW_S)
        wait_until(lambda: terminal.row(topic)[-1:] == ["paused"], "it is paused", deadline_s=SLOW_S)
        copied.run.wait_for_event("topic.paused", topic=topic)
        write(copied.source, topic, MORE)
        wait_until(lambda: terminal.row(topic)[1] == str(len(MORE)), "it lags behind", deadline_s=SLOW_S)
        assert record_count(copied.target, copied.remote) == len(FIRST)
        terminal.type("\r")
        terminal.shows("It is not replicated. Paused by")
        assert "(mm2py top): ticket 4711" in " ".join(terminal.text.split())
        terminal.type("\x1b")
        wait_until(lambda: terminal.row(topic), "the list of topics is back")
        terminal.resize(40, 10)
        wait_until(lambda: len(terminal.text.splitlines()) == 10, "it has the size of the terminal")
        wait_until(lambda: terminal.row(topic[:3]) or topic[:5] in terminal.text, "the topic has room")
        terminal.resize(110, 32)
        terminal.type("r\rn")
        terminal.shows("Nothing was changed.")
        terminal.type("r\ry")
        terminal.shows(f"{copied.flow}: {topic} resumed.", deadline_s=SLOW_S)
        wait_until(lambda: terminal.row(topic)[-2:] == ["keeps", "up"], "it goes on", deadline_s=SLOW_S)
        wait_until(lambda: values(copied.target, copied.remote) == FIRST + MORE, "all is copied")
        terminal.type("q")
        assert terminal.ended() == 0
        assert terminal.is_restored
    history = copied.run.ordered("history", copied.flow)
    assert f"{topic} paused by " in history and "(mm2py top): ticket 4711" in history, history


@pytest.mark.parametrize("ending", ["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_however_it_ends_the_terminal_is_as_before(copied: Copied, ending: str) -> None:
    with copied.top() as terminal:
        terminal.shows("No history, no charts and no events", deadline_s=SLOW_S)
        if ending == "Ctrl-C":
            terminal.type("\x03")
        else:
            terminal.signal(signal.Signals[ending])
        assert terminal.ended() == 0
        assert terminal.is_restored


def test_without_a_terminal_it_prints_once_and_ends_with_the_exit_code_of_the_status(copied: Copied) -> None:
    wait_until(lambda: copied.run.status()[0] == 0, "all is well")
    text = copied.run.ordered("top", "--port", copied.port)
    assert "\x1b" not in text and f"{copied.flow}: " in text and "leader.elected" in text, text
    (row,) = [one.split() for one in text.splitlines() if one.startswith(f"{copied.topic} ")]
    assert row[-2:] == ["keeps", "up"], text
    text = copied.run.ordered("top", "--once")
    assert "No history, no charts and no events: " in text and "Name it with --port" in text, text
    with OnTerminal("top", str(copied.run.file), "--once") as terminal:
        assert terminal.ended() == 0
        assert terminal.modes == {} and copied.topic in terminal.text
    with OnTerminal("top", str(copied.run.file), TERM="dumb") as terminal:
        assert terminal.ended() == 0
        assert terminal.modes == {}


def test_a_problem_shows_in_the_exit_code_and_a_worker_that_is_gone_on_the_screen(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    alias, topic = new_name("T").replace("-", ""), new_topic(source_cluster, "alone")
    write(source_cluster, topic, FIRST)
    never = Mm2py(
        one_way_properties(source_cluster, target_cluster, names=(alias, "B"), **{f"{alias}->B.topics": topic})
    )
    with OnTerminal("top", str(never.file), NO_COLOR="1") as terminal:
        terminal.shows("no worker runs", deadline_s=SLOW_S)
        wait_until(
            lambda: terminal.row(topic)[1:3] == [f"{len(FIRST)}", "?"] or "not-running" in terminal.text, "it says so"
        )
        terminal.type("q")
        assert terminal.ended() == 3 == never.status()[0]
        assert terminal.is_restored
