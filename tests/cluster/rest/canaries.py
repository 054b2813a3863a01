"""Secrets that are planted, and how they are found again: as they are, in JSON, in URLs and headers, in base64.

All begin and end with the same letters. So a text is searched for these first, and then for what stands between them.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from deploy.local.kafka import KafkaCluster
from tests.cluster.kafka_client import admin
from tests.cluster.running import ANSWER_S, wait_until

BEGIN, END = "Kanarie7vogel", "vogel9Kanarie"
"""No text of ours holds them."""


def in_base64(text: str) -> set[bytes]:
    """Return what base64 shows of a text, wherever it stands in what is encoded, with either alphabet."""
    data = text.encode()
    found = set()
    for before in range(3):
        encoded = base64.b64encode(b"x" * before + data)
        last = len(encoded) - (4 if (before + len(data)) % 3 else 0)
        inner = encoded[4 if before else 0 : last]
        found |= {inner, inner.replace(b"+", b"-").replace(b"/", b"_")}
    return found


def forms_of(text: str) -> set[bytes]:
    """Return how a text may be written."""
    shown = {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], quote(text), quote_plus(text)}
    shown |= {json.dumps(one)[1:-1] for one in (repr(text)[1:-1], ascii(text)[1:-1])}
    shown |= {quote(text, safe=""), json.dumps(json.dumps(text))[3:-3], text.encode().hex(), repr(text)[1:-1]}
    return {one.encode() for one in shown} | in_base64(text)


MARKS = {form.lower() for mark in (BEGIN, END) for form in (mark.encode(), mark.encode().hex().encode())}
ENCODED_MARKS = in_base64(BEGIN) | in_base64(END)


@dataclass
class Canaries:
    """Secrets, and where each was put."""

    put: dict[str, str] = field(default_factory=dict)

    def token(self, where: str) -> str:
        """Return a secret of letters and digits, as long as a token."""
        return self._new(where, secrets.token_hex(8))

    def password(self, where: str) -> str:
        """Return a secret that is written in another way in JSON, URLs and headers."""
        return self._new(where, f'{secrets.token_hex(3)} "é/+%&=\\')

    def _new(self, where: str, inner: str) -> str:
        found = f"{BEGIN}{len(self.put):03d}{inner}{END}"
        self.put[found] = where
        return found

    def found_in(self, text: str | bytes) -> set[str]:
        """Return the secrets that a text holds; if it holds only a part of one, this part."""
        data = text.encode() if isinstance(text, str) else text
        lower = data.lower()
        if not any(mark in lower for mark in MARKS) and not any(mark in data for mark in ENCODED_MARKS):
            return set()
        found = {secret for secret in self.put if any(form in data for form in forms_of(secret))}
        return found or {f"a part of one in {data[:300]!r}"}

    def leaks(self, texts: Mapping[str, Iterable[str | bytes]]) -> dict[str, dict[str, str]]:
        """Return which secrets are where, by the name of the texts: the secret, and where it was put."""
        leaks: dict[str, dict[str, str]] = {}
        for name, several in texts.items():
            for text in several:
                for secret in self.found_in(text):
                    leaks.setdefault(name, {})[secret] = self.put.get(secret, "")
        return leaks


class Topics:
    """All topics of a cluster, from now on."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._begins = self._ends()

    def _ends(self) -> dict[tuple[str, int], int]:
        client = admin(self._cluster)
        topics = client.list_topics(timeout=ANSWER_S).topics
        wanted = {
            TopicPartition(name, number): OffsetSpec.latest()
            for name, topic in topics.items()
            for number in topic.partitions
        }
        asked = client.list_offsets(wanted) if wanted else {}
        return {(at.topic, at.partition): future.result(ANSWER_S).offset for at, future in asked.items()}

    def records(self) -> dict[str, list[bytes]]:
        """Return keys, values and headers of all records that were appended since, by topic."""
        ends = {at: end for at, end in self._ends().items() if end > self._begins.get(at, 0)}
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.internal_bootstrap,
                "group.id": "canaries",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "enable.partition.eof": True,
            }
        )
        found: dict[str, list[bytes]] = {topic: [] for topic, _ in ends}
        unread: set[tuple[str | None, int | None]] = set(ends)
        try:
            consumer.assign([TopicPartition(*at, self._begins.get(at, 0)) for at in ends])

            def is_read() -> bool:
                for message in consumer.consume(10_000, 0.2):
                    if (error := message.error()) is not None:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        unread.discard((message.topic(), message.partition()))
                        continue
                    headers = [part for pair in message.headers() or [] for part in pair]
                    parts = [message.key(), message.value(), *headers]
                    texts = [one.encode() if isinstance(one, str) else one for one in parts if one is not None]
                    found[message.topic() or ""].append(b"\0".join(texts))
                return not unread

            wait_until(is_read, "all topics are read")
        finally:
            consumer.close()
        return found
