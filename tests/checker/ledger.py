"""The ledger: every send that a source cluster acknowledged, by topic and partition.

It proves what the brokers acknowledged. On compacted topics only the ledger still has the records that compaction has
removed. Its file has one JSON array a line, so that a load generator in another process can write it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.checker.dumped import Sent


class Ledger:
    """Acknowledged sends, in any order; several threads may add to it."""

    def __init__(self) -> None:
        self._entries: defaultdict[tuple[str, int], list[Sent]] = defaultdict(list)

    def add(self, topic: str, partition: int, entry: Sent) -> None:
        self._entries[topic, partition].append(entry)

    def of(self, topic: str, partition: int) -> Sequence[Sent]:
        """Return the sends to one partition, ascending by offset."""
        return sorted(self._entries.get((topic, partition), ()), key=lambda entry: entry.offset)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def save(self, path: Path) -> None:
        """Write the ledger to a file, in place of earlier contents."""
        with path.open("w", encoding="utf-8") as lines:
            for (topic, partition), entries in self._entries.items():
                for offset, digest, key, is_tombstone, is_aborted in entries:
                    key_hex = None if key is None else key.hex()
                    line = [topic, partition, offset, digest.hex(), key_hex, is_tombstone, is_aborted]
                    lines.write(json.dumps(line) + "\n")

    @classmethod
    def load(cls, *paths: Path) -> Ledger:
        """Return the contents of all these files."""
        ledger = cls()
        for path in paths:
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    topic, partition, offset, digest, key_hex, is_tombstone, is_aborted = json.loads(line)
                    key = None if key_hex is None else bytes.fromhex(key_hex)
                    ledger.add(topic, partition, Sent(offset, bytes.fromhex(digest), key, is_tombstone, is_aborted))
        return ledger
