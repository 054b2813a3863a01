"""The JSON that ``status``, ``gaps``, ``groups``, ``translate`` and ``history`` print and ``/v1`` of REST returns.

One set of models serves both. The reports inside are dataclasses; pydantic takes the description of each field from its
docstring. Workers do not import this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from mm2py.config.effective_settings import EffectiveSettings, SettingsOfClient, SettingsOfFlow, UnusedKey
from mm2py.flight.past import FlightLine
from mm2py.flight.why_then import PastExplanation
from mm2py.flow import ClusterAlias, Flow
from mm2py.flow_plan.planned import PlannedFlow
from mm2py.records.gap_record import Done, Gap, GapKind
from mm2py.records.history_record import HistoryEntry, HistoryKind, SettingChange
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.flow_report import FlowReport
from mm2py.status.not_copied import NotCopied
from mm2py.status.offset_report import OffsetReport
from mm2py.status.report import GroupReport, Problem, Report
from mm2py.status.why import Explanation, Replicated

FORMAT: Final = 1
"""The version of these objects. Within one version fields may be added; none changes its meaning."""


class JsonBody(BaseModel):
    """An object for programs. It refuses unknown fields, and the docstring below a field is its description."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def plain(self) -> Any:
        """Return the object as JSON types."""
        return self.model_dump(mode="json")


class FormatBody(JsonBody):
    """The fields with which every answer begins."""

    format: int = Field(default=FORMAT, examples=[FORMAT])
    """The version of this object. Within one version fields may be added; none changes its meaning."""
    exit_code: int = Field(examples=[0])
    """The exit code of the same command: 0 all is well, 1 a cluster did not answer, 3 something waits."""


class StatusBody(FormatBody):
    """The whole status at one moment: ``mm2py status --json``."""

    at_ms: int = Field(examples=[1764000000000])
    """When the clusters were asked, by the clock of the machine that asked."""
    summary: str = Field(examples=["copied except A->B (paused since 2026-11-26T08:00:00Z by ann: repairs; lag 25)"])
    """Whether all is copied, and what operators or backfills hold, in a sentence."""
    clusters: Mapping[ClusterAlias, str] = Field(examples=[{"A": "", "B": ""}])
    """By alias: why the cluster does not answer; empty if it does."""
    groups: tuple[GroupReport, ...]
    """The groups of workers, one for each target cluster."""
    flows: tuple[FlowReport, ...]
    """Those that need an operator come first."""
    problems: tuple[Problem, ...]
    """What is wrong; the most urgent comes first."""
    notes: tuple[str, ...] = ()
    """Doubtful entries of the file, such as misspelt keys."""

    @classmethod
    def of(cls, report: Report, *, exit_code: int) -> Self:
        return cls(
            exit_code=exit_code,
            at_ms=report.at_ms,
            summary=report.summary,
            clusters=report.clusters,
            groups=report.groups,
            flows=report.flows,
            problems=report.problems,
            notes=report.notes,
        )


class GapBody(JsonBody):
    """Records that are not in the copy, or no longer in it: a row of ``mm2py gaps --json``."""

    flow: str = Field(examples=["A->B"])
    """The flow that copies them."""
    topic: str = Field(examples=["orders"])
    """The topic, as the source names it."""
    partition: int = Field(examples=[3])
    """The partition of the topic."""
    kind: GapKind
    """What happened."""
    first_offset: int | None = Field(examples=[1200])
    """The first source offset that is missing; null: not known."""
    last_offset: int | None = Field(examples=[1899])
    """The last source offset that is missing; null: not known."""
    done: Done
    """What was done about it."""
    open: bool
    """It waits for an operator: mm2py gaps FILE accept."""
    position: int = Field(examples=[1200])
    """The next source offset when the gap was found."""
    at_ms: int = Field(examples=[1764000000000])
    """When the gap was found, by the clock of the worker."""
    text: str
    """The same in words."""

    @classmethod
    def of(cls, flow: Flow, gap: Gap) -> Self:
        return cls(
            flow=str(flow),
            topic=gap.topic,
            partition=gap.partition,
            kind=gap.kind,
            first_offset=gap.first_offset,
            last_offset=gap.last_offset,
            done=gap.done,
            open=gap.is_open,
            position=gap.position,
            at_ms=gap.at_ms,
            text=gap.text,
        )


class GroupsBody(FormatBody):
    """The consumer groups of a flow: ``mm2py groups --json``."""

    flow: str = Field(examples=["A->B"])
    """The flow that mirrors them."""
    at_ms: int = Field(examples=[1764000000000])
    """When the clusters were asked, by the clock of the machine that asked. The age of a checkpoint counts from it."""
    unread: str = Field(default="", examples=[""])
    """Why the source does not answer; empty: it does. If not, each group is shown as of its last checkpoint."""
    groups: tuple[ConsumerGroupReport, ...]
    """Those that are not ready come first, then by name."""


class TranslateBody(FormatBody):
    """Where offsets are in the other log: ``mm2py translate --json``."""

    flow: str = Field(examples=["A->B"])
    """The flow that copies the partition."""
    is_reverse: bool
    """The offsets are those of the remote partition."""
    at_ms: int = Field(examples=[1764000000000])
    """When the clusters were asked, by the clock of the machine that asked."""
    unread: str = Field(default="", examples=[""])
    """Why the source does not answer; empty: it does. If not, the target alone answers, and two things are not
    checked: whether the topic was recreated on the source, and where its log starts."""
    offsets: tuple[OffsetReport, ...]
    """One answer for each offset, in the order in which they were asked."""


class WhyBody(FormatBody):
    """Whether a topic, a partition or a group is replicated, and what decides it: ``mm2py why --json``."""

    flow: str = Field(examples=["A->B"])
    """The flow."""
    asked: str = Field(examples=["topic orders"])
    """What was asked about: ``topic orders``, ``partition orders/3`` or ``group billing``."""
    replicated: Replicated
    """The answer in a word."""
    text: str
    """The answer in a sentence or two: what decides it, since when, and what would change it."""
    reason: str = Field(examples=["excluded"])
    """Why it is not replicated, in a word, as in ``/v1/status``; empty: it is, or it is not known."""
    why: str
    """The rule or the setting that decides, in a sentence."""
    remedy: str
    """What would change it; empty: nothing has to, or nothing can."""
    since_ms: int | None
    """Since when, by the clock of the worker that found it out; null: not known."""
    others: tuple[NotCopied, ...]
    """Further reasons, the most urgent first."""
    at_ms: int | None = None
    """The moment of the last day that was asked about; null: the present."""
    around: tuple[FlightLine, ...] = ()
    """What changed around that moment, in the order of time; empty for the present."""
    lost: int = 0
    """How many changes around that moment the flight recorder had no room for."""

    @classmethod
    def of_past(cls, flow: Flow, then: PastExplanation, *, exit_code: int) -> Self:
        """Make the answer about a moment of the last day."""
        of_it = cls.of(flow, then.found, exit_code=exit_code)
        return of_it.model_copy(update={"at_ms": then.at_ms, "around": then.around, "lost": then.lost})

    @classmethod
    def of(cls, flow: Flow, found: Explanation, *, exit_code: int) -> Self:
        return cls(
            exit_code=exit_code,
            flow=str(flow),
            asked=found.asked,
            replicated=found.replicated,
            text=found.text,
            reason=found.reason,
            why=found.why,
            remedy=found.remedy,
            since_ms=found.since_ms,
            others=found.others,
        )


class ConfigBody(FormatBody):
    """Every setting that counts, by a file alone: ``mm2py config --json``."""

    file: str = Field(examples=["/etc/mm2py/mm2.properties"])
    """The file."""
    flows: tuple[SettingsOfFlow, ...]
    """Those that are enabled come first."""
    groups: tuple[SettingsOfClient, ...]
    """The groups of workers, one for each target cluster."""
    worker: tuple[SettingsOfClient, ...]
    """What counts for the whole file."""
    unused: tuple[UnusedKey, ...]
    """The keys of the file that mm2py does not use."""

    @classmethod
    def of(cls, file: str, found: EffectiveSettings, *, exit_code: int) -> Self:
        return cls(
            exit_code=exit_code,
            file=file,
            flows=found.flows,
            groups=found.groups,
            worker=found.worker,
            unused=found.unused,
        )


class PlanBody(FormatBody):
    """What would start, be created, changed or refused: ``mm2py plan --json``."""

    file: str = Field(examples=["/etc/mm2py/mm2.properties"])
    """The file."""
    changes: bool
    """Something would start, be created or changed, or waits for an operator."""
    flows: tuple[PlannedFlow, ...]
    """One for each flow, and for each pair of clusters that only has heartbeats."""
    notes: tuple[str, ...] = ()
    """Doubtful entries of the file, such as misspelt keys."""


class HistoryEntryBody(JsonBody):
    """One change of a flow's settings, or one request to its connectors, that was stored."""

    flow: str = Field(examples=["A->B"])
    """The flow."""
    at_ms: int = Field(examples=[1764000000000])
    """When it was stored, by the clock of the machine that stored it."""
    kind: HistoryKind
    """What was done."""
    by: str
    """Who did it, in words, without the reason."""
    user: str = Field(examples=["bob"])
    """Who did it: a login name, or a user of REST. Empty: not known."""
    host: str = Field(examples=["ops1"])
    """The machine of that user; over REST, the machine of the worker that was asked. Empty: not known."""
    reason: str = Field(examples=["raise topics for team x"])
    """The reason that the user gave; empty: none."""
    version: int | None = Field(examples=[8])
    """The version of the settings that was stored; null: it is no change of settings."""
    changes: tuple[SettingChange, ...]
    """The changed settings; empty if no settings were stored before. Of a group that was moved: its partitions."""
    unnamed: int
    """How many more settings changed, or partitions were moved."""
    connector: str | None
    """The connector; null: the entry concerns the settings, or a topic."""
    only_failed: bool
    """The connector was to restart only where it had failed."""
    topic: str | None
    """The topic that was to restart; null: none was."""
    partition: int | None
    """The partition of that topic; null: all its partitions, or no topic was to restart."""
    group: str | None = None
    """The consumer group that was moved; null: none was."""
    moved_to: str | None = None
    """The cluster to which it was moved; null: none was."""
    text: str
    """What was done, by whom and why, in a line."""

    @classmethod
    def of(cls, flow: Flow, entry: HistoryEntry) -> Self:
        author = entry.author
        return cls(
            flow=str(flow),
            at_ms=entry.at_ms,
            kind=entry.kind,
            by=entry.by,
            user=author.user,
            host=author.host,
            reason=author.reason,
            version=entry.version if entry.kind is HistoryKind.SETTINGS else None,
            changes=entry.changes,
            unnamed=entry.unnamed,
            connector=entry.connector or None,
            only_failed=entry.only_failed,
            topic=entry.topic or None,
            partition=entry.partition,
            group=entry.group or None,
            moved_to=entry.moved_to or None,
            text=entry.text,
        )


class HistoryBody(FormatBody):
    """The changes of flows, and the requests to their connectors: ``mm2py history --json``."""

    entries: tuple[HistoryEntryBody, ...]
    """The newest come last."""


def json_of(found: JsonBody | Sequence[JsonBody], *, indent: int | None = 2) -> str:
    """Return the text that a command prints, with its line end."""
    plain = found.plain() if isinstance(found, JsonBody) else [one.plain() for one in found]
    return json.dumps(plain, indent=indent) + "\n"
