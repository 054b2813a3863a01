"""``mm2py groups FILE A->B --move G`` and ``--move-back G``: one idle group goes on on the other cluster.

It shows where the group goes on, partition by partition, asks, commits all partitions or none, and stores in the
history of the flow who asked. MirrorMaker 2 has no such command; its users translate by hand.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from mm2py.cli.command import CommandFailed, within_deadline
from mm2py.cli.flow_sides import settings_of_workers
from mm2py.clock import Clock, SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.dr.groups.group_inquiry import GroupMoveInquiry
from mm2py.dr.groups.judgement import GroupMove, MoveState
from mm2py.dr.groups.moving import JudgedGroup, look_at_group, move_group, wait_for_group
from mm2py.dr.groups.printout import GroupMoveBody, changes_of, moved_text, outcome_of, plan_text
from mm2py.dr.open_run import refuse_move_beside
from mm2py.dr.standing_run import standing_run
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow_sides import FlowSides, sides_of
from mm2py.kafka.cluster import until_answered
from mm2py.kafka.write_gate import gated_alone
from mm2py.login import author_here
from mm2py.logs import make_logger
from mm2py.output import Write, confirm, say, write_out
from mm2py.records.author import Author
from mm2py.records.history_record import moved_entry
from mm2py.secret import printable
from mm2py.shared_settings.config_log import ConfigLog
from mm2py.status.bodies import json_of
from mm2py.status.exit_codes import EXIT_DONE, EXIT_USAGE, EXIT_WAITS


@dataclass(frozen=True, slots=True)
class MoveWanted:
    """What the command line asks for."""

    group: str
    is_back: bool
    left_topics: tuple[str, ...]
    only_plan: bool
    yes: bool
    json: bool
    timeout_s: float
    reason: str

    @property
    def option(self) -> str:
        """The command, as the history names it."""
        return f"mm2py groups --move{'-back' if self.is_back else ''}"


def run_move(file: SettingsFile, settings: FlowSettings, wanted: MoveWanted) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: a cluster does not answer, or the group was not moved.
    """
    ask = confirm if sys.stdin.isatty() and not wanted.json else None
    return asyncio.run(GroupMoveCommand(file, wanted, ask, clock=SystemClock()).run(settings))


class GroupMoveCommand:
    """One call of the command."""

    def __init__(
        self,
        file: SettingsFile,
        wanted: MoveWanted,
        ask: Callable[[str], bool] | None,
        *,
        clock: Clock,
        write: Write = write_out,
        connect: Callable[[str, FlowSettings], AbstractAsyncContextManager[FlowSides]] = sides_of,
    ) -> None:
        """``ask`` asks the operator; None: there is no terminal, so nothing is moved without ``--yes``."""
        self._file = file
        self._wanted = wanted
        self._ask = ask
        self._clock = clock
        self._out = write
        self._connect = connect
        self._author: Author = author_here(wanted.reason)
        self._by = self._author.by_command(wanted.option)

    async def run(self, settings: FlowSettings) -> int:
        """Do it, and return the exit code. Raises: as ``run_move``."""
        wanted = self._wanted
        async with self._connect("groups", settings) as sides:
            for side in sides:
                if side.away:
                    raise CommandFailed(side.away, remedy="Both clusters must answer to move a group.")
            settings, _ = await settings_of_workers(self._file, settings, sides.target)
            log = make_logger("warning", "text")
            source, target = sides.source.brokers, sides.target.brokers
            inquiry = GroupMoveInquiry(settings, source, target, log, is_back=wanted.is_back)
            timeout_s = 0.0 if wanted.only_plan else wanted.timeout_s
            found = await wait_for_group(
                inquiry,
                wanted.group,
                left_topics=wanted.left_topics,
                timeout_s=timeout_s,
                clock=self._clock,
                say=say,
            )
            if found is None:
                raise self._no_group(inquiry)
            topics = {name for part in found.move.partitions for name in (part.topic, part.other_topic)}
            run = await standing_run(settings.flow, sides, say)
            refuse_move_beside(run, wanted.group, topics, self._clock.wall_ms())
            if not wanted.json:
                self._write(plan_text(found.move))
            if wanted.only_plan or found.move.state is not MoveState.READY or found.move.is_there:
                return self._end(settings, found.move, is_moved=False)
            if not wanted.yes:
                if self._ask is None:
                    self._write("Nothing was moved: without a terminal --yes is needed.\n")
                    return EXIT_USAGE
                if not self._ask("Move it?"):
                    self._write("Nothing was moved.\n")
                    return EXIT_DONE
                found = await self._once_more(inquiry, found)
            await self._move(settings, sides, inquiry, found)
            if not wanted.json:
                self._write(moved_text(found.move))
            return self._end(settings, found.move, is_moved=True)

    def _no_group(self, inquiry: GroupMoveInquiry) -> ConfigError:
        return ConfigError(
            f"{inquiry.here.alias} lists no group {self._wanted.group!r}.",
            remedy="See kafka-consumer-groups.sh --list for those of that cluster.",
        )

    async def _once_more(self, inquiry: GroupMoveInquiry, shown: JudgedGroup) -> JudgedGroup:
        """Look again after the operator has answered, which may have taken minutes."""
        found = await look_at_group(inquiry, self._wanted.group, left_topics=self._wanted.left_topics)
        if found is None:
            raise self._no_group(inquiry)
        if found.move != shown.move:
            why = found.move.why or "its offsets are others now"
            raise CommandFailed(
                f"Group {self._wanted.group} was not moved: since it was shown, it has changed: {why}.",
                remedy="Look at it again.",
            )
        return found

    async def _move(
        self, settings: FlowSettings, sides: FlowSides, inquiry: GroupMoveInquiry, found: JudgedGroup
    ) -> None:
        """Move it, and store who asked. What would refuse the record refuses it before anything is moved."""
        clock, rng = self._clock, random.Random()  # noqa: S311  (spreads retries; nothing secret)
        history = ConfigLog(
            gated_alone(sides.target.brokers, clock), settings, worker="mm2py groups", clock=clock, rng=rng
        )
        await history.make_topic()
        there, move = gated_alone(inquiry.there.brokers, clock), found.move
        work = until_answered(lambda: move_group(inquiry, found, there), rng=rng)
        await within_deadline(inquiry.there.alias, work, f"committing for group {move.group}")
        entry = moved_entry(
            move.group, move.there, changes_of(move), at_ms=clock.wall_ms(), by=self._by, author=self._author
        )
        try:
            await history.write_history(entry)
        except Mm2Error as error:
            raise CommandFailed(
                f"Group {move.group} is moved to {move.there}, but who asked could not be stored: {error.what}",
                remedy=error.remedy,
            ) from error

    def _end(self, settings: FlowSettings, move: GroupMove, *, is_moved: bool) -> int:
        code = EXIT_DONE if move.state is MoveState.READY else EXIT_WAITS
        if self._wanted.json:
            body = GroupMoveBody(
                exit_code=code,
                flow=str(settings.flow),
                group=move.group,
                leaves=move.here,
                goes_to=move.there,
                outcome=outcome_of(move, is_moved=is_moved),
                why=move.why,
                remedy=move.remedy,
                by=self._by,
                partitions=move.partitions,
            )
            self._out(json_of(body))
        return code

    def _write(self, text: str) -> None:
        lines = (printable(with_file(line, self._file.argument)) for line in text.splitlines())
        self._out("".join(f"{line}\n" for line in lines))
