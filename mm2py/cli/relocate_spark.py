"""``mm2py relocate spark FILE CHECKPOINT --flow A->B``: a stopped query of Spark goes on on the other cluster.

It writes a new checkpoint beside the old one, with the offsets of the target. The old one never changes. It asks both
clusters, or the target alone, and no worker. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, NamedTuple

from mm2py.cli.command import CommandParser
from mm2py.cli.flow_sides import settings_of_workers
from mm2py.clock import Clock, SystemClock
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file, with_flow
from mm2py.config.settings import FlowSettings
from mm2py.flow_sides import FlowSides, sides_of
from mm2py.logs import make_logger
from mm2py.output import Write, write_out
from mm2py.relocate.checkpoint_folder import SparkCheckpoint, check_free, read_checkpoint, write_relocated
from mm2py.relocate.place_inquiry import PlaceInquiry
from mm2py.relocate.placing import PlacedOffset
from mm2py.relocate.relocation import (
    Relocation,
    RelocationBody,
    RelocationOutcome,
    kept_offsets,
    relocation_of,
    text_of,
)
from mm2py.relocate.spark_layout import CheckpointRefused
from mm2py.secret import printable
from mm2py.status.bodies import json_of
from mm2py.status.exit_codes import EXIT_DONE, EXIT_WAITS
from mm2py.status.target_alone import ask_both_or_target

STILL_S: Final = 30
"""A checkpoint with a file that is younger is taken for one of a running query."""
_NOTHING: Final = Relocation((), ())


class RelocateArguments(argparse.Namespace):
    """What follows ``relocate spark`` on the command line."""

    file: Path
    checkpoint: Path
    flow: str
    to: Path | None
    plan: bool
    yes: bool
    json: bool


class RelocationTold(NamedTuple):
    """What the clusters say."""

    unread: str
    """Why the source does not answer; empty if it does."""
    relocation: Relocation


def parse_arguments(arguments: Sequence[str]) -> RelocateArguments:
    """Read what follows ``relocate spark`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "relocate spark",
        "Writes a new checkpoint of a stopped query of Spark Structured Streaming, with which the query goes on on the "
        "flow's target at the exact record, with its state. The old checkpoint is never changed. If one offset has no "
        "exact place, nothing is written. Exit codes: 0 written, or it can be (--plan); 1 a cluster did not answer, or "
        "the checkpoint changed meanwhile; 2 wrong file or arguments, or the new folder exists; 3 refused: the text "
        "says why, and what to do.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="the checkpointLocation, a folder here")
    parser.add_argument("--flow", required=True, metavar="A->B", help="the query has read A, and goes on on B")
    parser.add_argument("--to", metavar="DIR", type=Path, help="the new checkpoint (default: CHECKPOINT-B)")
    parser.add_argument("--plan", action="store_true", help="say what would be written, and write nothing")
    parser.add_argument(
        "--yes", action="store_true", help=f"the query has stopped, also if its checkpoint changed {STILL_S} s ago"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args(arguments, namespace=RelocateArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``flow_of``, ``RelocateCommand.run``.
    """
    options = parse_arguments(arguments)
    file = with_flow(read_settings_file(options.file, None), options.flow)
    return asyncio.run(RelocateCommand(file, options, clock=SystemClock()).run(flow_of(file, options.flow)))


class RelocateCommand:
    """One call of the command."""

    def __init__(
        self,
        file: SettingsFile,
        options: RelocateArguments,
        *,
        clock: Clock,
        write: Write = write_out,
        connect: Callable[[str, FlowSettings], AbstractAsyncContextManager[FlowSides]] = sides_of,
    ) -> None:
        self._file = file
        self._options = options
        self._clock = clock
        self._out = write
        self._connect = connect

    async def run(self, settings: FlowSettings) -> int:
        """Do it, and return the exit code.

        Raises:
            ConfigError: a folder cannot be read or written, or the new one exists.
            CheckpointChanged: see ``write_relocated``.
            Mm2Error: a cluster does not answer.
        """
        options, flow = self._options, settings.flow
        folder = options.checkpoint.absolute()
        new = (options.to or folder.with_name(f"{folder.name}-{flow.target}")).absolute()
        told = RelocationTold("", _NOTHING)
        outcome, why, remedy = RelocationOutcome.REFUSED, "", ""
        try:
            checkpoint = read_checkpoint(folder)
            check_free(checkpoint, new)
            self._check(checkpoint, settings)
            told = await self._ask(checkpoint, settings)
            if (first := told.relocation.refused) is not None:
                why, remedy = told.relocation.why, first.remedy
            elif options.plan:
                outcome = RelocationOutcome.READY
            else:
                write_relocated(checkpoint, new, told.relocation.batches, flow.target)
                outcome = RelocationOutcome.RELOCATED
        except CheckpointRefused as error:
            why, remedy = error.what, error.remedy
        code = EXIT_WAITS if outcome is RelocationOutcome.REFUSED else EXIT_DONE
        body = RelocationBody(
            exit_code=code,
            flow=str(flow),
            checkpoint=str(folder),
            new_checkpoint=str(new),
            outcome=outcome,
            why=why,
            remedy=remedy,
            unread=told.unread,
            offsets=told.relocation.offsets,
        )
        self._out(json_of(body) if options.json else printable_lines(body, settings, told.relocation))
        return code

    def _check(self, checkpoint: SparkCheckpoint, settings: FlowSettings) -> None:
        """Refuse a checkpoint that is in use, or of the other cluster already. Raises: CheckpointRefused."""
        options, flow = self._options, settings.flow
        if checkpoint.cluster not in {"", flow.source}:
            raise CheckpointRefused(
                f"{checkpoint.folder} was relocated to {checkpoint.cluster}, and {flow} takes one of {flow.source}.",
                remedy="Name the flow that leads away from that cluster.",
            )
        age_s = (self._clock.wall_ms() - checkpoint.newest_ms) / 1000
        if age_s < STILL_S and not (options.yes or options.plan):
            raise CheckpointRefused(
                f"{checkpoint.folder} changed {max(0.0, age_s):.0f} s ago: the query may be running.",
                remedy=f"Stop it, and wait {STILL_S} s, or say --yes if it has stopped.",
            )

    async def _ask(self, checkpoint: SparkCheckpoint, settings: FlowSettings) -> RelocationTold:
        async with self._connect("relocate", settings) as (source, target):
            settings, _ = await settings_of_workers(self._file, settings, target)
            inquiry = PlaceInquiry(settings, source.brokers, target.brokers, make_logger("warning", "text"))
            kept = {number: kept_offsets(batch) for number, batch in checkpoint.content.items()}

            async def ask(*, is_target_alone: bool) -> list[PlacedOffset]:
                asked = [one for offsets in kept.values() for one in offsets]
                return await inquiry.look(asked, is_target_alone=is_target_alone)

            unread, found = await ask_both_or_target("reading the ledger", source, target, ask)
        places = iter(found)
        placed = {number: [next(places) for _ in offsets] for number, offsets in kept.items()}
        return RelocationTold(unread, relocation_of(checkpoint.batches, checkpoint.content, placed))


def printable_lines(body: RelocationBody, settings: FlowSettings, relocation: Relocation) -> str:
    """Return what people read."""
    here, there = settings.flow.source, settings.flow.target
    lines = text_of(body.offsets).splitlines()
    if body.unread:
        lines.append(f"{here} does not answer: whether topics were recreated there is not known ({body.unread})")
    topics = ", ".join(f"{name} where it read {topic}" for topic, name in relocation.topics().items())
    match body.outcome:
        case RelocationOutcome.RELOCATED:
            lines.append(f"Written: {body.new_checkpoint}. {body.checkpoint} is as it was.")
            lines.append(f"Start the query with this checkpointLocation, and let it read on {there}: {topics}.")
        case RelocationOutcome.READY:
            lines.append(f"Nothing was written. {body.new_checkpoint} would be, and the query would read {topics}.")
        case RelocationOutcome.REFUSED:
            lines.append(f"refused: {body.why}. {body.remedy}".replace(".. ", ". "))
            lines.append("Nothing was written.")
    return "".join(f"{printable(line)}\n" for line in lines)
