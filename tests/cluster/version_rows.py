"""What ``make compat`` found for each version of Kafka: a result file of rows, and the table of docs/compatibility.md.

    make compat ARGS=--save-compat                                        a row for each version whose test passed
    python -m tests.cluster.version_rows                                  the table of the page, from the newest file

A row is written by the test that proved it, so a version without one was not tested.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Final

from deploy.local.kafka import KafkaCluster
from mm2py.kafka import messages
from mm2py.kafka.admin import describe_broker_configs
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.port import BrokerId, ask
from mm2py.kafka.transport.wire import FETCH_KEY, PRODUCE_KEY

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = ROOT / "docs" / "results"
PAGE: Final = ROOT / "docs" / "compatibility.md"
HEAD: Final = "| Kafka | as source | as target | what it lacks |"
NODE: Final = BrokerId(1)
GROUP_VERSION: Final = "group.version"
"""The feature with which brokers run groups of the consumer protocol. Those of 3.7 to 3.9 know its requests only."""
CONSUMER_GROUPS: Final = "groups of the consumer protocol"
TOPIC_IDS_SINCE: Final = {FETCH_KEY: 13, PRODUCE_KEY: 13}
EXPIRY: Final = "producer.id.expiration.ms"
LIMIT: Final = "log.message.timestamp.before.max.ms"
LACKS: Final[Mapping[str, str]] = {
    "ConsumerGroupDescribe": "members of groups of the consumer protocol are not listed; it has no such groups",
    CONSUMER_GROUPS: "consumers join by the classic protocol only, whose groups are followed as ever",
    "Produce with topic ids": "if it is the target, mm2py compares topic ids before it writes, and not in the request"
    " ([M4](broker-facts.md#m4))",
    "Fetch with topic ids": "mm2py logs `cluster.no_topic_ids`, and compares ids in metadata",
    EXPIRY: "if it is the target, mm2py assumes that it forgets producers after `transactional.id.expiration.ms`, or"
    " after a day if that is sooner",
    LIMIT: "one limit for old and new timestamps, `message.timestamp.difference.max.ms`, counts on a remote topic",
}
"""What a version may lack, and what mm2py does then."""


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of Kafka beside the one that this repository tests with."""

    version: str
    beside: str
    read: int
    """Records that were copied from it, exactly once."""
    written: int
    """Records that were copied to it, exactly once."""
    kills: int
    """How often the worker was killed meanwhile."""
    groups: int
    """Consumer groups of each side whose checkpoints and commits were exact."""
    lacks: Sequence[str]


async def lacks_of(cluster: KafkaCluster) -> list[str]:
    """Return which of ``LACKS`` a cluster of one node lacks, as its broker answers."""
    host, _, port = cluster.bootstrap.rpartition(":")
    brokers = Cluster("versions", [(host, int(port))], rng=Random(1), client_id="version-rows")
    try:
        request = messages.ApiVersionsRequest(client_software_name="mm2py", client_software_version="0")
        reply = await ask(brokers, NODE, request, messages.ApiVersionsResponse)
        settings = await describe_broker_configs(brokers, NODE, [EXPIRY, LIMIT])
    finally:
        await brokers.close()
    assert not isinstance(settings, Exception), settings
    speaks = {int(one.api_key): int(one.max_version) for one in reply.api_keys}
    features = {one.name for one in reply.finalized_features if one.max_version_level}
    known = {setting.name for setting in settings}
    has = {
        "ConsumerGroupDescribe": int(messages.ConsumerGroupDescribeRequest.__api_key__) in speaks,
        CONSUMER_GROUPS: GROUP_VERSION in features,
        "Produce with topic ids": speaks[PRODUCE_KEY] >= TOPIC_IDS_SINCE[PRODUCE_KEY],
        "Fetch with topic ids": speaks[FETCH_KEY] >= TOPIC_IDS_SINCE[FETCH_KEY],
        EXPIRY: EXPIRY in known,
        LIMIT: LIMIT in known,
    }
    assert has.keys() == LACKS.keys()
    return [name for name, there in has.items() if not there]


def save(row: VersionRow, path: Path) -> None:
    """Write a row into a result file, in place of an earlier one of the same version."""
    rows = {one.version: one for one in load(path)} if path.exists() else {}
    rows[row.version] = row
    ordered = sorted(rows.values(), key=lambda one: [int(part) for part in one.version.split(".")])
    path.write_text(json.dumps([asdict(one) for one in ordered], indent=1) + "\n")


def load(path: Path) -> list[VersionRow]:
    """Return the rows of a result file."""
    return [VersionRow(**fields) for fields in json.loads(path.read_text())]


def newest() -> Path:
    """Return the newest result file."""
    return max(RESULTS.glob("compat-*.json"))


def table(rows: Sequence[VersionRow]) -> list[str]:
    """Return the lines of the table."""
    lines = [HEAD, "| --- | --- | --- | --- |"]
    for row in rows:
        cells = [f"{count:,} records, {row.kills} kills, {row.groups} groups" for count in (row.read, row.written)]
        lacks = ", ".join(f"[{name}](#{anchor(name)})" for name in row.lacks)
        lines.append(f"| {row.version} | {cells[0]} | {cells[1]} | {lacks or 'nothing'} |")
    return lines


def anchor(name: str) -> str:
    """Return the anchor of an entry of ``LACKS`` in the page."""
    return name.lower().replace(" ", "-").replace(".", "-")


def explained(rows: Sequence[VersionRow]) -> list[str]:
    """Return the lines that say what mm2py does about all that is lacking in ``rows``."""
    lacking = {name for row in rows for name in row.lacks}
    return [f'* <a id="{anchor(name)}"></a>**{name}**: {text}.' for name, text in LACKS.items() if name in lacking]


def with_table(page: str, rows: Sequence[VersionRow], source: str) -> str:
    """Return the page with this table in place of its own: from its first row on to the next heading."""
    lines = page.splitlines()
    first = lines.index(HEAD)
    last = next(at for at in range(first, len(lines)) if lines[at].startswith("## "))
    told = [*table(rows), "", f"From [{source}](results/{source}). What mm2py does where something is lacking:", ""]
    return "\n".join([*lines[:first], *told, *explained(rows), "", *lines[last:], ""])


def main() -> None:
    """Write the table into the page."""
    path = newest()
    PAGE.write_text(with_table(PAGE.read_text(), load(path), path.name))


if __name__ == "__main__":
    main()
