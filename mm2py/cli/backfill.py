"""``mm2py backfill FILE A->B``: copies the history of topics with Spark, then lets the live flow continue at the seam.

Meanwhile the workers of the flow do not copy these topics, not even workers that start later. They continue at the
exact next record when the backfill has ended, was stopped, or is abandoned. MirrorMaker 2 has no such command: history
goes through the worker that copies live traffic.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mm2py.backfill.copy_job import TaskOrder, check_executors, collect, results_of
from mm2py.backfill.flow_survey import EARLIEST_WORD, NOW_WORD, AlreadyCopied, BackfillRequest, BackfillSurvey
from mm2py.backfill.frames.ranges import LogRange
from mm2py.backfill.hold import Hold, NotHeld, outlives_failed_start, refuse_held, refuse_living_driver
from mm2py.backfill.job_failure import JobFailed
from mm2py.backfill.pipeline.expressions import SESSION_SETTINGS, Expressions
from mm2py.backfill.pipeline.job import filtered_results_of, kept_of
from mm2py.backfill.plan import MB, make_plan
from mm2py.backfill.results import NotKept, check_folder, counted_by_ledger, keep
from mm2py.backfill.selection import SettingsSelection, selection_of
from mm2py.cli import backfill_task
from mm2py.cli.backfill_arguments import BackfillArguments, parse_arguments, where_of
from mm2py.cli.backfill_printout import Progress, plan_text, result_text, selection_lines
from mm2py.cli.command import within_deadline
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import Flow
from mm2py.flow_clusters import both_of
from mm2py.kafka.cluster import Cluster, fetch_metadata, until_answered
from mm2py.kafka.port import TopicPartition
from mm2py.kafka.producer.fencing import parse
from mm2py.kafka.write_gate import gated_alone
from mm2py.login import author_here, host_name, login_name
from mm2py.output import confirm, say, write_out
from mm2py.records.backfill_record import ID_CHARS, Backfill, BackfillState, Range
from mm2py.records.connector_config import encode_flow
from mm2py.records.source_offset import StoredPosition
from mm2py.shared_settings.config_log import ConfigLog
from mm2py.shared_settings.direction import Seen
from mm2py.shared_settings.flow_owner import refuse_another_group
from mm2py.shared_settings.follow import merged_or_file
from mm2py.shared_settings.running_mm2 import look_for_mm2
from mm2py.status.backfill_report import progress_of
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE
from mm2py.transforms.comparing import refuse_transformed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOK_EVERY_S: Final = 1.0
QUIET: Final = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
ATTEMPTS: Final = 4
"""How often a task is tried on a local master. Elsewhere ``spark.task.maxFailures`` decides, which is 4 as well."""


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``flow_of``; or the backfill is refused.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    return asyncio.run(_run(options, file, flow_of(file, options.flow)))


async def _run(options: BackfillArguments, file: SettingsFile, settings: FlowSettings) -> int:
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    async with both_of("backfill", settings, rng) as (source, target):
        return await _Driver(options, file, settings, source, target, rng).run()


@dataclass(slots=True)
class _Outcome:
    rows: list[dict[str, Any]]
    error: Mm2Error | None = None
    is_stopped: bool = False


def nothing_new(flow: Flow) -> ConfigError:
    """Return the error of a backfill without ``--topics`` if the workers have begun all topics that they select."""
    return ConfigError(
        f"The workers of {flow} have begun all topics that they select, so there is nothing to backfill.",
        remedy="Name topics with --topics. Those that only FILE selects are held first, and then selected: do not run"
        " mm2py apply before, or the workers begin them.",
    )


class _Driver:
    """One call of the command."""

    def __init__(
        self,
        options: BackfillArguments,
        file: SettingsFile,
        settings: FlowSettings,
        source: Cluster,
        target: Cluster,
        rng: random.Random,
    ) -> None:
        self._options = options
        self._file = file
        self._by_file = self._settings = settings
        self._source = source
        self._target = target
        self._clock = SystemClock()
        self._rng = rng
        self._configs = ConfigLog(
            gated_alone(target, self._clock), settings, worker="mm2py backfill", clock=self._clock, rng=rng
        )
        self._survey = BackfillSurvey(settings, source, target)
        self._selection: SettingsSelection | None = None
        """The settings to be stored, if only the file selects the topics so far."""
        self._stop = asyncio.Event()

    async def run(self) -> int:
        alias = self._settings.flow.target
        await within_deadline(alias, self._configs.read_patiently(self._rng), "reading settings")
        self._settings = merged_or_file(self._file, self._by_file, self._configs.config)
        self._survey = BackfillSurvey(self._settings, self._source, self._target)
        if self._settings.many_to_one:
            raise ConfigError(
                f"{self._settings.flow} shares its remote topics with other flows (many.to.one), so it cannot be"
                " backfilled exactly once.",
                remedy="Let the workers copy the history.",
            )
        if self._options.abandon is not None:
            return await self._abandon(self._options.abandon)
        refuse_transformed(
            self._settings.flow,
            self._settings.transforms,
            "mm2py backfill",
            "tasks of Spark do not run them",
            remedy="Let the workers copy the history.",
        )
        direction = Seen(self._configs.records.direction.current, self._settings.standby)
        if not direction.is_on:
            raise ConfigError(
                f"{self._settings.flow} is {direction.text}, so it cannot be backfilled.",
                remedy=f"Turn it on first: mm2py dr turn FILE '{self._settings.flow}'.",
            )
        if self._options.resume is not None:
            return await self._resume(self._options.resume)
        return await self._begin()

    @property
    def _bytes_per_second_max(self) -> int | None:
        """What all tasks together may read; None: no limit."""
        rate = self._options.max_mb_per_second
        return self._settings.bytes_per_second_max if rate is None else rate * MB

    # Begin, resume, abandon

    async def _begin(self) -> int:
        options = self._options
        expressions = Expressions(options.where, options.select)
        topics = list(dict.fromkeys(options.topics)) or await self._new_topics()
        refuse_held(topics, list(self._configs.records.backfills.values()))
        await self._look_at_selection(topics)
        asked = BackfillRequest(topics, where_of(options.begin, [EARLIEST_WORD]), where_of(options.until, [NOW_WORD]))
        slots = slots_of(options.master)
        work = self._survey.look(asked, slots=slots, bytes_per_second_max=self._bytes_per_second_max)
        found = await within_deadline(self._settings.flow.source, work, "looking at the topics")
        await self._survey.refuse_copied(topics, found.positions)
        plan = make_plan(
            found.partitions,
            slots=slots,
            missing_topics=found.missing_topics,
            bytes_per_second_max=self._bytes_per_second_max,
            memory_bytes_a_task=self._file.configuration().memory_max_bytes,
            is_filtered=bool(expressions),
        )
        backfill = Backfill(
            f"{self._rng.getrandbits(4 * ID_CHARS):0{ID_CHARS}x}",
            plan.ranges(),
            plan.tasks,
            begun_at_ms=self._clock.wall_ms(),
            by=driver_name(),
            where=expressions.where,
            select=expressions.select,
        )
        if not options.json or options.dry_run:
            write_out(plan_text(plan, str(self._settings.flow), expressions, as_json=options.json))
        self._show_selection()
        if options.dry_run:
            if expressions:
                await self._check_expressions(backfill)
            return EXIT_DONE
        if (code := self._confirm()) is not None:
            return code
        return await self._copy(backfill, plan.bytes_an_offset)

    # Topics that only the file selects

    async def _look_at_selection(self, topics: Sequence[str]) -> None:
        """Find out whether settings that select the topics must be stored. If so, use these settings from now on.

        Raises: ConfigError, Mm2IsRunning, FlowOfAnotherGroup: they must not be stored.
        """
        stored = self._configs.config
        self._selection = selection_of(stored, self._file, self._by_file, topics, settings=self._settings)
        if self._selection is not None:
            await self._refuse_others()
            self._settings = self._selection.settings
            self._survey = BackfillSurvey(self._settings, self._source, self._target)

    async def _refuse_others(self) -> None:
        """Raises: Mm2IsRunning, FlowOfAnotherGroup; see ``mm2py apply``."""
        await until_answered(lambda: look_for_mm2(self._settings, self._target), rng=self._rng)
        await refuse_another_group(self._settings, self._configs, self._target, clock=self._clock, rng=self._rng)

    def _show_selection(self) -> None:
        if self._selection is not None:
            tell = say if self._options.json else lambda text: write_out(f"{text}\n")
            for line in selection_lines(str(self._settings.flow), self._selection):
                tell(line)

    def _confirm(self) -> int | None:
        """Ask whether to store the selection. Returns the exit code if it is not to be stored, else None."""
        if self._selection is None or self._options.yes:
            return None
        if self._options.json or not sys.stdin.isatty():
            say("Nothing was stored: without a terminal, or with --json, --yes is needed.")
            return EXIT_USAGE
        if confirm("Store this, and copy?"):
            return None
        write_out("Nothing was stored.\n")
        return EXIT_DONE

    async def _select(self, hold: Hold) -> None:
        """Let the workers select the topics, which the hold keeps them from copying. Raises: as ``Hold.select``."""
        if self._selection is not None:
            await self._refuse_others()  # another one may have started while the operator was asked
            author = author_here(f"mm2py backfill {hold.backfill.id}")
            await hold.select(replace(self._selection.wanted, author=author), instead_of=self._selection.stored)

    async def _check_expressions(self, backfill: Backfill) -> None:
        """Raises: ConfigError, if an expression cannot be used."""
        spark = await asyncio.to_thread(self._start_spark, backfill)
        try:
            await self._kept(spark, backfill, self._orders(backfill, 1))
        finally:
            await asyncio.to_thread(spark.stop)

    async def _new_topics(self) -> list[str]:
        """Return the topics that the flow selects, by the stored settings, and has not begun.

        Raises: ConfigError, there are none.
        """
        metadata = await fetch_metadata(self._source, None)
        begun = {topic for topic, _ in await self._survey.positions()}
        held = {topic for one in self._configs.records.backfills.values() if one.holds for topic in one.topics}
        names = [
            name
            for name, topic in metadata.topics.items()
            if not topic.is_internal and not topic.error_code and self._settings.replicates(name)
        ]
        found = sorted(set(names) - begun - held - {self._settings.policy.heartbeats_topic()})
        if not found:
            raise nothing_new(self._settings.flow)
        return found

    def _known(self, backfill_id: str) -> Backfill:
        found = self._configs.records.backfills.get(backfill_id)
        if found is None:
            known = ", ".join(sorted(self._configs.records.backfills)) or "none"
            raise ConfigError(
                f"{self._settings.flow} has no backfill {backfill_id!r}.", remedy=f"mm2py status shows them: {known}."
            )
        return found

    async def _abandon(self, backfill_id: str) -> int:
        backfill = self._known(backfill_id)
        if not backfill.holds:
            write_out(f"Backfill {backfill.id} is over already: {backfill.state}.\n")
            return EXIT_DONE
        refuse_living_driver(backfill, self._clock.wall_ms())
        positions = await self._survey.positions() if backfill.is_filtered else {}
        await Hold(self._configs, backfill, self._clock).end(BackfillState.STOPPED, "abandoned")
        if any(key in backfill.ranges() and not stored.drained for key, stored in positions.items()):
            say(
                "Its last records were filtered, so the workers may not recognise them, and may report that the source"
                " was cut back (mm2py gaps). Accept such a gap: up to a second of filtered records may then come again."
            )
        write_out(f"Backfill {backfill.id} is abandoned: the workers of {self._settings.flow} copy the rest.\n")
        return EXIT_DONE

    async def _resume(self, backfill_id: str) -> int:
        backfill = self._known(backfill_id)
        if backfill.state is BackfillState.DONE:
            write_out(f"Backfill {backfill.id} is done already.\n")
            return EXIT_DONE
        refuse_living_driver(backfill, self._clock.wall_ms())
        others = [one for one in self._configs.records.backfills.values() if one.id != backfill.id]
        refuse_held(list(backfill.topics), others)
        self._refuse_strangers(backfill, await self._survey.positions())
        await self._look_at_selection(sorted(backfill.topics))  # its driver may have died before that was stored
        self._show_selection()
        if (code := self._confirm()) is not None:
            return code
        resumed = replace(backfill, run=backfill.run + 1, state=BackfillState.COPYING, by=driver_name())
        work = self._survey.bytes_an_offset(sorted(backfill.topics))
        size = await within_deadline(self._settings.flow.source, work, "looking at the topics")
        return await self._copy(resumed, size)

    def _refuse_strangers(self, backfill: Backfill, positions: Mapping[TopicPartition, StoredPosition]) -> None:
        """Raises: AlreadyCopied, if the live flow has continued with a topic of the backfill."""
        for key in backfill.ranges():
            stored = positions.get(key)
            name = None if stored is None or stored.by is None else parse(stored.by, self._settings.group)
            if stored is not None and (name is None or name.process[:ID_CHARS] != backfill.id):
                why = f"the workers have gone on with it behind backfill {backfill.id}"
                raise AlreadyCopied(str(self._settings.flow), key[0], why)

    # Copy

    async def _copy(self, backfill: Backfill, bytes_an_offset: float | None) -> int:
        if self._options.parquet is not None:
            check_folder(self._options.parquet)
        spark = await asyncio.to_thread(self._start_spark, backfill)
        await asyncio.to_thread(check_executors, spark, self._orders(backfill, 1), backfill_task.check)
        at_once = max(1, min(spark.sparkContext.defaultParallelism, len(backfill.tasks)))  # executors are up by now
        orders = self._orders(backfill, at_once)
        frame = await self._frame(spark, backfill, orders)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        hold = Hold(self._configs, backfill, self._clock)
        try:
            await hold.begin()
            positions = await self._survey.positions()
            if not backfill.run:
                await self._survey.refuse_copied(list(backfill.topics), positions)
            else:
                self._refuse_strangers(backfill, positions)
            await self._select(hold)
            if not self._options.json:
                write_out(f"Backfill {backfill.id}: the workers of {self._settings.flow} wait with these topics.\n")
        except NotHeld:
            raise  # another driver has the hold
        except BaseException as error:
            if not outlives_failed_start(backfill):
                await hold.end(BackfillState.STOPPED, str(error))
            raise
        try:
            outcome = await self._run_job(hold, spark, frame, bytes_an_offset)
        except NotHeld:
            raise
        except BaseException as error:
            if not backfill.is_filtered:  # its tasks may have been killed: see docs/backfill.md, Limits
                await hold.end(BackfillState.STOPPED, str(error))
            raise
        finally:
            with suppress(Exception):
                await asyncio.to_thread(spark.stop)
        return await self._finish(hold, outcome)

    def _start_spark(self, backfill: Backfill) -> SparkSession:
        from mm2py.backfill.session import open_session  # noqa: PLC0415

        topics = ", ".join(sorted(backfill.topics))[:80]
        name = f"mm2py backfill {self._settings.flow}: {topics}"
        settings = QUIET | SESSION_SETTINGS if backfill.is_filtered else QUIET
        return open_session(name, master=with_attempts(self._options.master), settings=settings)

    async def _frame(self, spark: SparkSession, backfill: Backfill, orders: Sequence[TaskOrder]) -> DataFrame:
        """Return the frame of results; nothing is copied before it is collected. Raises: ConfigError."""
        if not backfill.is_filtered:
            return results_of(spark, orders, backfill_task.copy)
        kept = await self._kept(spark, backfill, orders)
        return await asyncio.to_thread(filtered_results_of, kept, orders, backfill_task.copy_rows)

    async def _kept(self, spark: SparkSession, backfill: Backfill, orders: Sequence[TaskOrder]) -> DataFrame:
        """Return the frame of records that a filtered backfill keeps. Raises: ConfigError."""
        topics = (await fetch_metadata(self._source, sorted(backfill.topics))).topics
        ids = {name: topic.topic_id for name, topic in topics.items()}
        ranges = [
            LogRange(topic, ids.get(topic), number, *at)
            for order in orders
            for (topic, number), at in order.ranges.items()
        ]
        return await asyncio.to_thread(
            partial(
                kept_of,
                spark,
                orders[0],
                ranges,
                Expressions(backfill.where, backfill.select),
                read_committed=self._settings.read_committed,
            )
        )

    async def _run_job(
        self, hold: Hold, spark: SparkSession, frame: DataFrame, bytes_an_offset: float | None
    ) -> _Outcome:
        backfill = hold.backfill
        title = f"mm2py backfill {self._settings.flow} {', '.join(sorted(backfill.topics))[:80]} ({backfill.id})"
        job = asyncio.create_task(
            asyncio.to_thread(partial(collect, spark, frame, job=backfill.id, title=title)), name="Spark job"
        )
        keeping = asyncio.create_task(hold.keep(), name="hold")
        showing = asyncio.create_task(self._show(backfill, bytes_an_offset), name="progress")
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            await asyncio.wait([job, stopping, keeping], return_when=asyncio.FIRST_COMPLETED)
            if keeping.done() and not job.done():
                spark.sparkContext.cancelJobGroup(backfill.id)
                await asyncio.wait([job])
                await keeping
            if not job.done():
                spark.sparkContext.cancelJobGroup(backfill.id)
                await asyncio.wait([job])
                return _Outcome([], is_stopped=True)
            return _complete(await job, backfill)
        except JobFailed as error:
            return _Outcome([], error, is_stopped=self._stop.is_set())
        finally:
            for task in (keeping, showing, stopping):
                task.cancel()
            await asyncio.gather(keeping, showing, stopping, return_exceptions=True)

    def _orders(self, backfill: Backfill, at_once: int) -> list[TaskOrder]:
        """Return the orders of all tasks; ``at_once`` of them divide the rate."""
        path = self._options.file.absolute()  # a mounted secret is a link, and leads elsewhere on each machine
        ranges = backfill.ranges()
        config = self._configs.config if self._selection is None else self._selection.wanted
        most = self._bytes_per_second_max
        return [
            TaskOrder(
                str(path),
                backfill_task.digest_of(path),
                str(self._settings.flow),
                None if config is None else encode_flow(config),
                backfill.id,
                number,
                backfill.run,
                {key: Range(*ranges[key]) for key in keys},
                None if most is None else max(1, most // at_once),
            )
            for number, keys in enumerate(backfill.tasks)
        ]

    async def _show(self, backfill: Backfill, bytes_an_offset: float | None) -> None:
        """Show the progress until cancelled."""
        with Progress(self._clock) as progress:
            while True:
                with suppress(Mm2Error):
                    done, total = progress_of(backfill, await self._survey.positions())
                    progress.show(done, total, bytes_an_offset=bytes_an_offset)
                await asyncio.sleep(LOOK_EVERY_S)

    async def _finish(self, hold: Hold, outcome: _Outcome) -> int:
        backfill, flow = hold.backfill, self._settings.flow
        if outcome.is_stopped and not backfill.is_filtered:
            await hold.end(BackfillState.STOPPED, "stopped by an operator")
            say(f"Backfill {backfill.id} is stopped. The workers of {flow} copy the rest.")
            return EXIT_INTERRUPTED
        if outcome.is_stopped or outcome.error is not None:
            say(f"Backfill {backfill.id} is stopped." if outcome.error is None else str(outcome.error))
            say(
                f"The workers of {flow} still wait with these topics. Resume it: mm2py backfill {self._options.file}"
                f" '{flow}' --resume {backfill.id}. Or let them copy the rest: --abandon {backfill.id}."
            )
            return EXIT_INTERRUPTED if outcome.is_stopped else EXIT_FAILED
        await until_answered(lambda: hold.end(BackfillState.DONE), rng=self._rng)
        rows, kept, as_json = await counted_by_ledger(outcome.rows, flow, self._target), None, self._options.json
        try:
            if self._options.parquet is not None:
                kept = keep(rows, self._options.parquet, backfill.id)
        except NotKept as error:
            say(str(error))
            as_json = True
        write_out(result_text(backfill.id, str(flow), rows, kept, as_json=as_json))
        return EXIT_DONE


def _complete(rows: list[dict[str, Any]], backfill: Backfill) -> _Outcome:
    """Return the outcome of a job that has ended. A partition without a result was copied by no task."""
    missing = sorted(backfill.ranges().keys() - {(row["topic"], row["partition"]) for row in rows})
    if not missing:
        return _Outcome(rows)
    topic, number = missing[0]
    what = f"Spark has ended the job, and {len(missing)} partition(s) have no result, the first is {topic}-{number}."
    return _Outcome(rows, JobFailed(what, remedy="This is a fault of mm2py or of Spark: report it."))


def with_attempts(master: str) -> str:
    """Return the master with several attempts for a task that fails; by default a local master makes only one."""
    if master == "local":
        return f"local[1,{ATTEMPTS}]"
    return f"{master[:-1]},{ATTEMPTS}]" if master.startswith("local[") and "," not in master else master


def driver_name() -> str:
    """Return who runs this process, and where."""
    return f"{login_name()}@{host_name()} {os.getpid()}"


def slots_of(master: str) -> int | None:
    """Return how many tasks run at once, as far as the master's name says it; None: not known here, for a cluster."""
    if master.startswith("local["):
        inside = master[len("local[") :].partition("]")[0].partition(",")[0]
        return os.cpu_count() or 1 if inside == "*" else max(1, int(inside)) if inside.isdecimal() else 1
    return 1 if master == "local" else None


__all__ = ["NotHeld", "parse_arguments", "run", "slots_of", "where_of"]
