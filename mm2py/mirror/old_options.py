"""The options of MirrorMaker 1 and of the Go mirror maker: what each means here, or why it is refused. Pure.

Options that name topics and files are not in the table: ``request.py`` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from mm2py.errors import ConfigError


class OldMeaning(Enum):
    """What becomes of an option."""

    NOTHING = auto()
    """It is accepted, and there is nothing to set."""
    ALWAYS = auto()
    """It is always so here. Another value is refused."""
    REFUSED = auto()


@dataclass(frozen=True, slots=True)
class OldOption:
    """One option of an older mirror."""

    name: str
    meaning: OldMeaning
    text: str
    """What happens here instead, or why it is refused, in a sentence."""
    agrees: tuple[str, ...] = ("true",)
    """The values of an option of the kind ALWAYS that are as it is here."""


OLD_OPTIONS: Final = (
    OldOption(
        "num.producers",
        OldMeaning.NOTHING,
        "One process sends to all brokers at once. Start the same command on more machines to share the work.",
    ),
    OldOption(
        "num.streams",
        OldMeaning.NOTHING,
        "One process reads all partitions at once. Start the same command on more machines to share the work.",
    ),
    OldOption(
        "queue.size", OldMeaning.NOTHING, "What is in flight is bounded in bytes: memory.max.bytes of --write-file."
    ),
    OldOption("offset.commit.interval.ms", OldMeaning.NOTHING, "Positions are stored every second."),
    OldOption("new.consumer", OldMeaning.NOTHING, "Brokers keep the positions. There is no other consumer."),
    OldOption("preserve.partitions", OldMeaning.ALWAYS, "A record stays in the partition of its number."),
    OldOption("preserve.order", OldMeaning.ALWAYS, "Records of a partition stay in their order."),
    OldOption(
        "abort.on.send.failure",
        OldMeaning.ALWAYS,
        "No record is dropped: what the target refuses stops its partition, and is named.",
    ),
    OldOption(
        "message.handler",
        OldMeaning.REFUSED,
        "A handler is Java, and would change records. Records are copied as they are.",
    ),
    OldOption("message.handler.args", OldMeaning.REFUSED, "There is no message.handler."),
    OldOption(
        "consumer.rebalance.listener",
        OldMeaning.REFUSED,
        "A listener is Java, and there is no consumer group that rebalances. The leader of the workers"
        " assigns partitions.",
    ),
    OldOption("rebalance.listener.args", OldMeaning.REFUSED, "There is no consumer.rebalance.listener."),
)


def notes_on(given: Mapping[str, str]) -> Sequence[str]:
    """Return a line for each option that was given.

    Args:
        given: by the names of ``OLD_OPTIONS``, their values; a flag without a value is ``true``.
    Raises:
        ConfigError: one is refused, or asks for what is not so here.
    """
    lines: list[str] = []
    for option in OLD_OPTIONS:
        value = given.get(option.name)
        if value is None:
            continue
        if option.meaning is OldMeaning.REFUSED:
            raise ConfigError(f"--{option.name} is refused. {option.text}", remedy="Leave it out.")
        if option.meaning is OldMeaning.ALWAYS and value.lower() not in option.agrees:
            raise ConfigError(
                f"--{option.name} {value} is refused. {option.text} This cannot be switched off.",
                remedy="Leave it out.",
            )
        always = "is always so" if option.meaning is OldMeaning.ALWAYS else "means nothing here"
        lines.append(f"--{option.name} {always}: {option.text}")
    return lines
