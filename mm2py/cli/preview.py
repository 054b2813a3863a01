"""``mm2py preview FILE A->B --topic T``: what the flow's transforms make of the last records of a topic.

It reads from the source and writes nothing. MirrorMaker 2 has no such command: its operators see what a transform does
when it has done it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandParser, number_up_to, within_deadline
from mm2py.config.configuration import flow_of, read_settings_file, with_flow
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.internal_table import each_placed_record
from mm2py.errors import ConfigError
from mm2py.flow_clusters import source_of
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import find_bounds
from mm2py.kafka.port import Brokers
from mm2py.output import write_out
from mm2py.records.batch import Record
from mm2py.secret import printable
from mm2py.status.exit_codes import EXIT_DONE, EXIT_WAITS
from mm2py.transforms.preview import PreviewedRecord, lines_of, preview, summary_of
from mm2py.transforms.processes import FunctionProcesses

RECORDS_DEFAULT: Final = 10
RECORDS_MOST: Final = 1000


class PreviewArguments(argparse.Namespace):
    """What follows ``preview`` on the command line."""

    file: Path
    flow: str
    topic: str
    records: int


def parse_arguments(arguments: Sequence[str]) -> PreviewArguments:
    """Read what follows ``preview`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "preview",
        "Shows what the transforms of a flow make of the last records of a topic. It runs them twice and names records"
        " that come out differently. It prints the content of records, and writes nothing. Exit codes: 0 all come out"
        " or are left out; 1 the source did not answer; 2 wrong file or arguments, or no transform is for the topic;"
        " 3 a record failed, or came out differently.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument("--topic", required=True, metavar="T", help="as the source names it")
    parser.add_argument(
        "--records",
        metavar="N",
        type=number_up_to(RECORDS_MOST, least=1),
        default=RECORDS_DEFAULT,
        help=f"how many of the last records; {RECORDS_DEFAULT} unless set",
    )
    return parser.parse_args(arguments, namespace=PreviewArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``flow_of``; or the source does not answer.
    """
    options = parse_arguments(arguments)
    settings = flow_of(with_flow(read_settings_file(options.file, None), options.flow), options.flow)
    found = asyncio.run(_preview(settings, options))
    lines = [*lines_of(found), summary_of(found)]
    write_out("".join(f"{printable(line)}\n" for line in lines))
    return EXIT_WAITS if any(one.failure or one.again for one in found) else EXIT_DONE


async def _preview(settings: FlowSettings, options: PreviewArguments) -> list[PreviewedRecord]:
    topic = settings.source_topic(options.topic)
    remote = settings.remote_topic(topic)
    chain = settings.chain_of(topic)
    if chain is None:
        raise ConfigError(
            f"{settings.flow} has no transform for the topic {topic}, whose copy is {remote}.",
            remedy="It is copied as it is. A predicate TopicNameMatches has to match the name of the copy.",
        )
    source = source_of("preview", settings, random.Random())  # noqa: S311  (spreads retries; nothing secret)
    try:
        reading = last_records(source, topic, options.records, read_committed=settings.read_committed)
        records = await within_deadline(settings.flow.source, reading, "reading records")
    finally:
        await source.close()
    first, second = FunctionProcesses(), FunctionProcesses()
    try:
        return preview(chain, records, remote_topic=remote, first=first, second=second)
    finally:
        first.close()
        second.close()


async def last_records(brokers: Brokers, topic: str, count: int, *, read_committed: bool) -> list[tuple[int, Record]]:
    """Return the last records of a topic with their partitions, about as many of each partition.

    Raises: KafkaError, DamagedTopic.
    """
    found = (await fetch_metadata(brokers, [topic])).topics.get(topic)
    if found is None or found.error_code:
        raise BrokerRefused(f"Looking at {topic}", UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error_code)
    bounds = await find_bounds(brokers, {(topic, number): part.leader for number, part in found.partitions.items()})
    filled = [key for key, (start, end) in bounds.items() if end > start]
    each = -(-count // max(1, len(filled)))
    begin = {number: max(bounds[name, number][0], bounds[name, number][1] - each) for name, number in filled}
    only = replace(found, partitions={number: found.partitions[number] for number in begin})
    records = [one async for one in each_placed_record(brokers, only, begin, read_committed=read_committed)]
    return records[-count:] if len(filled) == 1 else records[:count]
