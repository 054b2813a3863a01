"""The command line of ``mm2py backfill``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from mm2py.backfill.flow_survey import EARLIEST_WORD, NOW_WORD, Where
from mm2py.backfill.results import folder_of
from mm2py.cli.command import CommandParser, number_up_to
from mm2py.errors import ConfigError
from mm2py.kafka.port import TopicPartition

LOCAL: Final = "local[*]"
RATE_MOST: Final = 1_000_000


class BackfillArguments(argparse.Namespace):
    """What follows ``backfill`` on the command line."""

    file: Path
    flow: str
    topics: list[str]
    where: str
    select: str
    begin: str
    until: str
    master: str
    max_mb_per_second: int | None
    parquet: Path | None
    dry_run: bool
    yes: bool
    resume: str | None
    abandon: str | None
    json: bool


def parse_arguments(arguments: Sequence[str]) -> BackfillArguments:
    """Read what follows ``backfill`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "backfill",
        "Copies the history of topics with Spark, exactly once, while the workers of the flow wait with "
        "these topics; then they go on at the exact next record. Exit codes: 0 copied, or only planned (--dry-run), or "
        "abandoned, or the answer was N; 1 it failed: resume it, or abandon it; 2 wrong file or arguments, or a topic "
        "has to be selected, and there is neither a terminal to ask on nor --yes; 130 stopped: the workers copy the "
        "rest.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument(
        "--topics",
        nargs="+",
        action="extend",
        default=[],
        metavar="T",
        help="as the source names them; default: all that the workers select and have not begun. Topics that only"
        " FILE selects have to be named",
    )
    parser.add_argument(
        "--from",
        dest="begin",
        default=EARLIEST_WORD,
        metavar="WHERE",
        help="earliest, a time (2026-11-01T00:00:00Z, or ms), or offsets: topic:partition=offset,…; default: earliest",
    )
    parser.add_argument(
        "--until", default=NOW_WORD, metavar="WHERE", help="the seam: now, a time, or offsets; default: now"
    )
    parser.add_argument(
        "--where", default="", metavar="SQL", help="copy only records of which this is true, in Spark's SQL"
    )
    parser.add_argument(
        "--select", default="", metavar="SQL", help="make key, value or headers anew, in Spark's SQL: ... AS value, ..."
    )
    parser.add_argument("--master", default=LOCAL, metavar="URL", help="of Spark; default: %(default)s")
    parser.add_argument(
        "--max-mb-per-second", metavar="N", type=number_up_to(RATE_MOST, least=1), help="read at most so much in all"
    )
    parser.add_argument(
        "--parquet",
        type=folder_of,
        metavar="DIR",
        help="keep the results of all ranges there; default: none, they are not kept",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print the plan")
    parser.add_argument(
        "--yes",
        action="store_true",
        help="do not ask before topics are selected that only FILE selects; needed where there is no terminal",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--resume", metavar="ID", help="go on with a backfill whose driver has died, or that failed")
    way.add_argument("--abandon", metavar="ID", help="end a backfill: the workers copy the rest")
    parser.add_argument("--json", action="store_true", help="one JSON object: the plan, or the results")
    found = parser.parse_args(arguments, namespace=BackfillArguments())
    says_what = found.topics or found.where or found.select or found.begin != EARLIEST_WORD or found.until != NOW_WORD
    if (found.resume or found.abandon) and says_what:
        raise ConfigError(
            "--resume and --abandon take no --topics, --where, --select, --from and --until.",
            remedy="The backfill has them already.",
        )
    return found


def where_of(text: str, words: Sequence[str]) -> Where:
    """Read a value of ``--from`` or ``--until``. Raises: ConfigError."""
    if text in words:
        return text
    if "=" in text:
        return dict(_place(one) for one in text.split(","))
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is no place in a log.",
            remedy=f"Write {words[0]}, a time (2026-11-01T00:00:00Z), or offsets (orders:0=1200,orders:1=0).",
        ) from None
    if at.tzinfo is None:
        raise ConfigError(f"{text!r} names no time zone.", remedy=f"Write {text}Z for UTC.")
    return int(at.timestamp() * 1000)


def _place(text: str) -> tuple[TopicPartition, int]:
    name, _, offset = text.strip().partition("=")
    topic, colon, number = name.rpartition(":")
    if not colon or not topic or not number.isdecimal() or not offset.isdecimal():
        raise ConfigError(f"{text!r} is no offset of a partition.", remedy="Write topic:partition=offset.")
    return (topic, int(number)), int(offset)
