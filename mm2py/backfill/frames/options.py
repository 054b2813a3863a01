"""The options of ``spark.read.format("mm2py")``: parses the texts that Spark passes. Pure.

Names follow Spark's own Kafka connector where it has the option. An unknown option is refused, because a misspelt one
would silently read something else. No option is a secret: ``file`` has the path of the settings file, not its content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from mm2py.errors import ConfigError
from mm2py.flow import PARTITION_MOST, Flow, parse_flow

EARLIEST: Final = -2
LATEST: Final = -1
"""Instead of an offset; the same numbers as in Spark's own connector."""


@dataclass(frozen=True, slots=True)
class ReadBound:
    """Where reading begins or ends: by offset or by time."""

    default: int = EARLIEST
    """EARLIEST or LATEST, for the partitions that ``offsets`` does not name."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition; EARLIEST and LATEST are allowed."""
    timestamp_ms: int | None = None
    """If given, the other fields do not count: the first record of that time or later, or the end of the log."""

    def of(self, partition: int) -> int:
        return self.offsets.get(partition, self.default)


class ClusterSide(StrEnum):
    """Which cluster of a flow."""

    SOURCE = "source"
    TARGET = "target"


class OffsetColumns(StrEnum):
    """Which offsets a record gets."""

    OWN = "own"
    BOTH = "both"
    """Also ``source_offset`` and ``target_offset``, as the ledger of the flow pairs them."""


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """A topic on one side of a flow, and the file that says how to reach it."""

    file: str
    """As it is found on every executor."""
    flow: Flow
    side: ClusterSide
    topic: str
    """As this side names it."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is to be read."""

    place: TopicPlace
    partitions: tuple[int, ...] | None
    """None: all."""
    starting: ReadBound
    ending: ReadBound
    read_committed: bool
    batches: bool
    """Raw batches, not records."""
    offset_columns: OffsetColumns
    min_partitions: int
    """Of the DataFrame: ranges are cut until there are this many."""
    max_offsets_per_trigger: int | None
    """Of a stream; None: all offsets that exist."""


PLACE_OPTIONS: Final = ("file", "flow", "side", "topic")
_BATCH_ONLY: Final = ("endingOffsets", "endingTimestamp", "minPartitions")
_STREAM_ONLY: Final = ("maxOffsetsPerTrigger",)
_READ_OPTIONS: Final = (
    *PLACE_OPTIONS,
    *("partitions", "startingOffsets", "startingTimestamp", "isolation", "batches", "offsets"),
)


def read_options(given: Mapping[str, str], *, is_stream: bool) -> ReadOptions:
    """Read the options of a reader.

    Args:
        given: as Spark passes them: names in any case.
    Raises:
        ConfigError: one is unknown, missing or wrong; the error names it.
    """
    refused = _BATCH_ONLY if is_stream else _STREAM_ONLY
    options = Options(given, (*_READ_OPTIONS, *(_STREAM_ONLY if is_stream else _BATCH_ONLY)))
    for name in refused:
        if options.has(name):
            raise ConfigError(f"Option {name} means nothing to {_kind(is_stream)}.", remedy="Leave it out.")
    options.check_known()
    return ReadOptions(
        place=options.place(),
        partitions=options.numbers("partitions"),
        starting=options.bound("starting", EARLIEST),
        ending=ReadBound(LATEST) if is_stream else options.bound("ending", LATEST),
        read_committed=options.choice("isolation", "read_committed", "read_uncommitted") == "read_committed",
        batches=options.choice("batches", "false", "true") == "true",
        offset_columns=OffsetColumns(options.choice("offsets", *OffsetColumns)),
        min_partitions=options.number("minPartitions", least=1) or 1,
        max_offsets_per_trigger=options.number("maxOffsetsPerTrigger", least=1),
    )


def _kind(is_stream: bool) -> str:
    return "a stream" if is_stream else "a batch read"


class Options:
    """The options that the user gave; names in upper or lower case."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): (name, value) for name, value in given.items()}
        self._known = known

    def has(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str) -> str | None:
        found = self._given.get(name.lower())
        return None if found is None else found[1]

    def check_known(self) -> None:
        """Refuse unknown options. Raises: ConfigError."""
        known = {name.lower() for name in self._known}
        strangers = [name for lower, (name, _) in self._given.items() if lower not in known]
        if strangers:
            raise ConfigError(
                f"Unknown option {', '.join(map(repr, strangers))}.", remedy=f"There are: {', '.join(self._known)}."
            )

    def required(self, name: str) -> str:
        """Return the value of a required option. Raises: ConfigError."""
        found = self.text(name)
        if not found:
            raise ConfigError(f"Option {name} is missing.", remedy=f"Add .option({name!r}, ...).")
        return found

    def choice(self, name: str, *values: str) -> str:
        """Return one of ``values``, by default the first. Raises: ConfigError."""
        found = self.text(name)
        if found is None:
            return values[0]
        if found.lower() not in values:
            raise ConfigError(f"Option {name} is {found!r}.", remedy=f"Write {' or '.join(values)}.")
        return found.lower()

    def number(self, name: str, *, least: int = 0) -> int | None:
        """Return a number, if there is one. Raises: ConfigError."""
        found = self.text(name)
        if found is None:
            return None
        if not (found.isascii() and found.isdecimal()) or int(found) < least:
            raise ConfigError(f"Option {name} is {found!r}.", remedy=f"Write a number from {least} on.")
        return int(found)

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """Return the partitions that ``0,2,5-7`` names, each once. Raises: ConfigError."""
        found = self.text(name)
        if found is None:
            return None
        numbers: dict[int, None] = {}
        for part in found.split(","):
            first, dash, last = part.strip().partition("-")
            ends = [first, last] if dash else [first, first]
            if not all(end.isascii() and end.isdecimal() and int(end) <= PARTITION_MOST for end in ends):
                raise ConfigError(f"Option {name} is {found!r}.", remedy="Write numbers, such as 0,2,5-7.")
            numbers |= dict.fromkeys(range(int(ends[0]), int(ends[1]) + 1))
        return tuple(numbers)

    def bound(self, which: str, default: int) -> ReadBound:
        """Return where to start or to end. Raises: ConfigError."""
        name, by_time = f"{which}Offsets", f"{which}Timestamp"
        timestamp_ms, text = self.number(by_time), self.text(name)
        if timestamp_ms is not None:
            if text is not None:
                raise ConfigError(f"Options {name} and {by_time} exclude each other.", remedy="Leave one of them out.")
            return ReadBound(LATEST, timestamp_ms=timestamp_ms)
        if text is None or text.lower() in {"earliest", "latest"}:
            return ReadBound({"earliest": EARLIEST, "latest": LATEST}[text.lower()] if text else default)
        wrong = ConfigError(
            f"Option {name} is {text!r}.", remedy='Write earliest, latest, or offsets by partition: {"0": 5, "1": -2}.'
        )
        try:
            found = json.loads(text)
        except ValueError:
            raise wrong from None
        if not isinstance(found, dict):
            raise wrong
        for key, value in found.items():
            if not (key.isascii() and key.isdecimal()) or type(value) is not int or value < EARLIEST:
                raise wrong
        return ReadBound(default, {int(key): value for key, value in found.items()})

    def place(self) -> TopicPlace:
        """Return the topic and its cluster. Raises: ConfigError."""
        file, flow, topic = (self.required(name) for name in ("file", "flow", "topic"))
        self.required("side")
        return TopicPlace(file, parse_flow(flow), ClusterSide(self.choice("side", *ClusterSide)), topic)
