"""A worker with users of each role and topics in each state, and what ``/v1`` tells of them: what the page has to show.

Names, patterns and reasons in it are such that a page that took them for HTML would run a script.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx2

from deploy.local.certificates import write_private
from deploy.local.kafka import KafkaCluster
from mm2py.secret import Secret
from mm2py_rest.access.hashes import hash_password, hash_token
from tests.cluster.copies import make_topic, new_topic
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import new_name, values, write
from tests.cluster.running import ANSWER_S, Mm2py, one_way_properties, wait_until

SCRIPT: Final = "<img src=x onerror=alert(1)>"
"""As HTML it would open a window. It is a pattern that fits no topic as well."""
PASSWORD: Final = "canary-page-51c0"  # noqa: S105
TOKENS: Final = {name: f"canary-{name}-" + "7" * 40 for name in ("alice", "olga", "victor", "guest", "sam")}
ROLES: Final = {"alice": "admin", "olga": "operator", "victor": "reader", "guest": "reader", "sam": "operator"}
WORDS: Final = {
    "safe": "safe",
    "behind": "behind",
    "incomplete": "incomplete",
    "unknown": "not known",
    "not-copied": "not copied",
}
"""What the page calls a readiness."""
RECORDS: Final = 20


class Scene:
    """A running worker of one flow, and its REST."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, directory: Path) -> None:
        self.source, self.target = source, target
        self.alias = new_name("P").replace("-", "")
        self.flow = f"{self.alias}->B"
        self.users = directory / "users"
        self.orders, self.payments = new_topic(source, "orders"), new_topic(source, "payments")
        self.filled, self.blocked = new_topic(source, "filled"), new_topic(source, "blocked")
        self.left_out = new_topic(source, "tmp")
        self.group = f"{SCRIPT} {self.alias}"
        for topic in (self.orders, self.payments, self.filled, self.blocked):
            write(source, topic, [b"%d" % number for number in range(RECORDS)])
        for topic in (self.filled, self.blocked):
            make_topic(target, self.remote(topic), 1)
            write(target, self.remote(topic), ["foreign"])
        selected = (self.orders, self.payments, self.filled, self.blocked, self.left_out, SCRIPT)
        commit(source, self.group, self.orders, 12)
        self.write_users(TOKENS)
        properties = one_way_properties(
            source,
            target,
            names=(self.alias, "B"),
            **{
                f"{self.flow}.topics": ",".join(selected),
                f"{self.flow}.topics.exclude": "tmp.*",
                f"{self.flow}.groups": f".*{self.alias}",
                f"{self.flow}.on.source.gap": "stop",
                "config.storage.replication.factor": 1,
                "emit.checkpoints.enabled": True,
                "emit.checkpoints.interval.seconds": 1,
                "listeners": "http://127.0.0.1:0",
                "rest.users.file": self.users,
            },
        )
        self.run = Mm2py(properties)

    def __enter__(self) -> Self:
        self.run.__enter__()
        try:
            self.address = str(self.run.wait_for_event("rest.listening")["at"])
            wait_until(
                lambda: httpx2.get(f"{self.address}/health", timeout=ANSWER_S).status_code == 200, "it is healthy"
            )
            for topic in (self.orders, self.payments):
                self.run.wait_until(lambda topic=topic: self.copied(topic) == RECORDS, "it is copied")
            for topic in (self.filled, self.blocked):
                self.run.wait_for_event("topic.refused", topic=topic)
        except BaseException as error:
            self.run.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.run.__exit__(kind, error, at)

    def remote(self, topic: str) -> str:
        return f"{self.alias}.{topic}"

    def copied(self, topic: str) -> int:
        """Return how many records the copy has; markers of transactions and fences are none."""
        return len(values(self.target, self.remote(topic)))

    def write_users(self, tokens: Mapping[str, str], **roles: str) -> None:
        """Write the users' file, which the worker reads again. Sam sees this flow alone; paula has a password.

        Args:
            roles: of some users, other ones than theirs.
        """
        lines = [
            f"{name}:{hash_token(Secret(token))}:{roles.get(name, ROLES[name])}"
            + (f":{self.flow}" if name == "sam" else "")
            for name, token in tokens.items()
        ]
        write_private(self.users, "\n".join([*lines, f"paula:{_PROOF}:reader", ""]).encode())

    # What REST tells

    def ask(self, method: str, path: str, status: int = 200, user: str = "alice", **more: Any) -> Any:
        """Ask as a user; return the body."""
        headers = {"Authorization": f"Bearer {TOKENS[user]}"}
        answer = httpx2.request(method, f"{self.address}{path}", headers=headers, timeout=ANSWER_S, **more)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def told(self, path: str) -> Any:
        """Return what a route of the flow tells."""
        return self.ask("GET", f"/v1/flows/{self.flow}/{path}")

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.told(path)["items"]
        return found

    def flow_told(self) -> dict[str, Any]:
        (found,) = self.ask("GET", "/v1/flows")["items"]
        return dict(found)

    def topic_told(self, topic: str) -> dict[str, Any]:
        return next(one for one in self.items("topics?limit=1000") if one["topic"] == topic)

    def reasons(self, topic: str) -> set[str]:
        """Return why a topic is not copied, by ``/v1``."""
        return {one["reason"] for one in self.topic_told(topic)["not_copied"]}

    def wait_for_reasons(self, topic: str, *reasons: str) -> None:
        wait_until(lambda: self.reasons(topic) == set(reasons), f"{topic} is not copied because of {reasons}")

    def setting(self, name: str) -> dict[str, Any]:
        return next(one for one in self.told("config")["settings"] if one["name"] == name)

    def event_told(self, text: str) -> tuple[str, dict[str, Any]]:
        """Return the first event of the last day whose text has this in it, with its id, as the stream tells it."""
        headers = {"Authorization": f"Bearer {TOKENS['alice']}"}
        path = f"{self.address}/v1/events?since=24h"
        last_id = ""
        with httpx2.stream("GET", path, headers=headers, timeout=ANSWER_S) as answer:
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    last_id = value
                elif name == "data" and text in (event := json.loads(value))["text"]:
                    return last_id, event
        raise AssertionError(f"the stream ended before it told of {text!r}")


_PROOF: Final = hash_password(Secret(PASSWORD))


# As the page writes it


def count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def figures_of(flow: Mapping[str, Any]) -> list[str]:
    """Return what the page has to say of a flow in numbers."""
    lag = count(flow["lag_records"])
    if flow["lag_is_partial"] and flow["lag_records"] is not None:
        lag = f"at least {lag}" if flow["lag_records"] else "–"
    found = [f"{lag} records behind", f"{plural(flow['topics_copied'], 'topic')} copied"]
    for name, number in (("topic", flow["topics_waiting"]), ("gap", flow["open_gaps"])):
        if number:
            found.append(f"{plural(number, name)} {'waits' if number == 1 else 'wait'} for you")
    if oldest := flow["verdict"]["oldest"]:
        some = " of what is copied" if flow["verdict"]["left_out"] else ""
        found.append(f"Furthest behind{some}: {oldest}, ")
    return [*found, plural(flow["workers"], "worker")]


def plural(number: int, one: str) -> str:
    return f"{count(number)} {one}{'' if number == 1 else 's'}"


def points_of(flow: Mapping[str, Any]) -> list[str]:
    """Return what the page says of the verdict, and what would be lost.

    How far the flow is behind is in the loss and in the figures, and not told a third time.
    """
    first, *others = flow["verdict"]["parts"]
    first = first[0].upper() + first[1:] if first.startswith(("safe ", "not ")) else first
    return [first, *(one for one in others if not _BEHIND.fullmatch(one)), flow["loss"]]


_BEHIND: Final = re.compile(r"(the rest is )?.* behind( \(all was copied up to [^)]*\))?")
