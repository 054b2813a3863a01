"""Invented facts of two flows, and the REST application with them: no socket, no broker, no worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import Configuration, FlowSettings
from mm2py.dr.journal import JournalEntry
from mm2py.dr.readiness import ReadinessFacts, RecoveryReadiness, readiness_of
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import ClusterAlias, Flow, Kind, parse_flow
from mm2py.flow_history.rings import FlowHistory
from mm2py.group.membership import GroupState
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.records.control_record import (
    Assigned,
    Beat,
    Claim,
    Entry,
    Joined,
    Listed,
    MemberId,
    TaskName,
    TopicClaim,
)
from mm2py.records.gap_record import Done, Gap, GapKind
from mm2py.records.source_offset import StoredPosition
from mm2py.records.standstill import Cause, Standstill
from mm2py.status.consumer_groups import ConsumerGroupReport, PartitionReport
from mm2py.status.facts import UNDECIDED, Facts, FlowFacts, GroupFacts
from mm2py.status.flow_report import FlowReport
from mm2py.status.offset_inquiry import Question
from mm2py.status.offset_report import OffsetReport
from mm2py.status.report import report_of
from mm2py.status.target_alone import GroupsTold, OffsetsTold
from mm2py.status.why import Explanation, TopicDetails
from mm2py.status.why_group import GroupOnSource
from mm2py.topics.filters import WhyNot
from mm2py_rest.access.callers import EVERYONE, Caller, User
from mm2py_rest.access.roles import CALLER_KEY
from mm2py_rest.app import make_app
from mm2py_rest.clusters.live import View
from mm2py_rest.reports.quarantine import QuarantinedRecord
from mm2py_rest.services import Services
from mm2py_rest.v1 import V1
from tests.scenarios.world import configuration, flow_settings, settings_file

A, B = ClusterAlias("A"), ClusterAlias("B")
FLOW: Final = parse_flow("A->B")
REFUSED: Final = parse_flow("B->A")
CONFLICT: Final = parse_flow("C->B")
W1, W2 = MemberId("0000000a"), MemberId("0000000b")
NOW_MS: Final = 1_000_000
FILE: Final = (
    ("topics", "orders,payments,narrow,late,tmp"),
    ("topics.exclude", "tmp"),
    ("A->B.offset.lag.max", "7"),
    ("A.security.protocol", "SASL_SSL"),
    ("A.sasl.mechanism", "PLAIN"),
    (
        "A.sasl.jaas.config",
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="mm2" password="canary-4711";',
    ),
    ("memory.max.bytes", "50000000"),
    ("B.session.timeout.ms", "6000"),
)
STORED: Final = FlowConfig(
    {"enabled": "true", "topics": "orders"}, DecidedBy.REST, 4, worker="host-1", at_ms=NOW_MS - 5
)
STANDSTILLS: Final = (
    Standstill(W1, "narrow", (Cause("refused", "Topic narrow of A->B is refused: no.", "Widen it.", NOW_MS - 9000),)),
)
GAPS: Final = (
    Gap(GapKind.EXPIRED, "orders", 1, 5, 9, Done.STOPPED, 5, "the source has deleted records", 1_000),
    Gap(GapKind.EXPIRED, "orders", 0, 0, 3, Done.CONTINUED, 4, "passed over", 900),
)


def group_state() -> GroupState:
    """Return a group of two: the first leads, coordinates the flow and copies ``payments``; the second ``orders``."""
    view = GroupState()
    heads = {TaskName(FLOW, Kind.SOURCE): W1, TaskName(FLOW, Kind.HEARTBEAT): W2}
    owners = {TaskName(FLOW, Kind.SOURCE, "orders", number): W2 for number in range(2)}
    owners |= {TaskName(FLOW, Kind.SOURCE, "payments", 0): W1}
    records = [
        *(Joined(one, f"host-{one}", "0.1.0", "", (FLOW,), (FLOW,), {}, "id-B", "log", 3000) for one in (W1, W2)),
        Claim(W1, 1, "c"),
        Assigned(W1, 1, 1, heads),
        Listed(W1, FLOW, {"orders": 2, "payments": 1}, claims={"orders": TopicClaim("A.", False)}),
        Assigned(W1, 1, 2, owners),
        Beat(W1, {FLOW: 4}),
        Beat(W2, {FLOW: 4}),
    ]
    for number, record in enumerate(records):
        view.take(Entry(number, NOW_MS - 100 + number, record))
    return view


def flow_facts(**extra: Any) -> FlowFacts:
    """Return the facts of a flow: ``orders`` is 30 behind and has an open gap; other topics are not copied.

    ``payments`` is 10 behind, with 100 bytes a record, the last one 2.5 s old. MirrorMaker 2 has stored the positions
    of ``orders``.
    """
    found = FlowFacts(
        flow_settings(FILE),
        positions={
            ("orders", 0): StoredPosition(70, next_target=68),
            ("orders", 1): StoredPosition(5, next_target=5),
            ("payments", 0): StoredPosition(
                90, next_target=90, newest_ms=NOW_MS - 2500, record_bytes=100, mode="repack"
            ),
        },
        gaps=GAPS,
        standstills=STANDSTILLS,
        selected={"orders": 2, "payments": 1, "narrow": 1, "late": 1},
        left_out={
            "audit": WhyNot.NOT_INCLUDED,
            "tmp": WhyNot.EXCLUDED,
            "__consumer_offsets": WhyNot.INTERNAL,
            "B.orders": WhyNot.CYCLE,
            "mm2-offsets.B.internal": WhyNot.OWN_TOPIC,
            "aaaa": UNDECIDED,
        },
        starts={("narrow", 0): 0, ("late", 0): 0},
        ends={("orders", 0): 90, ("orders", 1): 15, ("payments", 0): 100, ("narrow", 0): 8, ("late", 0): 2},
        stored=STORED,
        file=settings_file(FILE).shared(FLOW),
    )
    return replace(found, **extra)


def facts_of(*flows: FlowFacts, state: GroupState | None = None) -> Facts:
    group = GroupFacts(B, "mm2py", "mm2-cluster.mm2py.internal", group_state() if state is None else state)
    return Facts(NOW_MS, {A: "", B: ""}, [group], flows or [flow_facts()], {REFUSED: "B->A is refused: it is MM2's."})


class FakeLive:
    """Always returns the same look."""

    def __init__(self, facts: Facts, before: Facts | None = None) -> None:
        self.found = View(1.0, facts, report_of(facts), before)

    async def view(self) -> View:
        return self.found

    async def within(self, age_s: float, *, patience_s: float) -> View | None:
        return self.found


class FakeQuestions:
    """Answers in place of the clusters, and keeps the questions about offsets."""

    def __init__(self, unread: str = "") -> None:
        self.asked: list[Question] = []
        self.unread = unread

    async def starts(self, topic: str) -> dict[int, int]:
        return {0: 3, 1: 5} if topic == "orders" else {}

    async def groups(self, settings: FlowSettings) -> GroupsTold:
        return GroupsTold(
            NOW_MS, self.unread, [group_report("slow", ready=False), group_report("fast"), group_report("good")]
        )

    async def translate(self, settings: FlowSettings, question: Question) -> OffsetsTold:
        self.asked.append(question)
        return OffsetsTold(
            NOW_MS, self.unread, [OffsetReport("orders", 0, 7, "A.orders", 5, True, "copied", "ledger", "copied")]
        )

    async def details(self, topic: str, found: Explanation) -> TopicDetails:
        return TopicDetails(is_hidden=topic == "hidden", quarantined={0: 2} if topic == "orders" else {})

    async def group_on_source(self, group: str) -> GroupOnSource | None:
        return GroupOnSource(None)

    async def readiness(
        self, file: SettingsFile, settings: FlowSettings, asked: FlowReport, clusters: Mapping[ClusterAlias, str]
    ) -> RecoveryReadiness:
        told = await self.groups(settings)
        return readiness_of(
            ReadinessFacts(asked.flow, NOW_MS, verdict=asked.verdict, lag=asked.lag, groups=told.reports)
        )

    async def journal(self) -> tuple[JournalEntry, ...]:
        return ()

    async def quarantined(self) -> list[QuarantinedRecord]:
        return [
            QuarantinedRecord("orders", 0, at, None, "A->B", 1, 87, "INVALID_RECORD", 2, 3, 4, None) for at in (5, 9)
        ]


class FakeHistory:
    """The history of a flow, as the test writes it."""

    def __init__(self, history: FlowHistory | None = None, error: Mm2Error | None = None) -> None:
        self.history = history or FlowHistory()
        self.problem = "" if error is None else str(error)
        self.error = error

    async def read(self) -> None:
        if self.error is not None:
            raise self.error


def group_report(name: str, *, ready: bool = True) -> ConsumerGroupReport:
    part = PartitionReport("orders", 0, 50, 20, "A.orders", 48, 0, 48, "", True, "ledger", "", 50, NOW_MS - 1000)
    why = "" if ready else "it has members on the target (Stable)"
    return ConsumerGroupReport(name, "Empty", "Empty", 20, 0, ready, why, (part,), True, "", "")


def services(facts: Facts | None = None, before: Facts | None = None, **v1: Any) -> Services:
    """Return the services of the application, in the REST process of the first worker."""

    async def cluster_id() -> str | None:
        return "id-B"

    found: Configuration = configuration(FILE)
    refused: Mapping[Flow, Any] = {REFUSED: ConfigError("B->A is refused: it is MM2's.", remedy="")}
    given = {"questions": {FLOW: FakeQuestions()}, "histories": {FLOW: FakeHistory()}, "worker": "host-a", **v1}
    return Services(
        replace(found, refused=refused),
        None,  # type: ignore[arg-type]  # nothing here asks it
        FakeLive(facts or facts_of(), before),  # type: ignore[arg-type]
        {},
        SystemClock(),
        cluster_id,
        V1(settings_file(FILE), **given),
    )


@cache
def _app() -> FastAPI:
    """Return the application, the same for all tests: making its routes takes a while."""
    return make_app(services())


def client(facts: Facts | None = None, *, user: User = EVERYONE, **given: Any) -> TestClient:
    """Return a client of the application, with its own services."""
    own, app = services(facts, **given), _app()

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        app.state.services = own
        scope.setdefault("state", {})[CALLER_KEY] = Caller(user, "", "none")
        await app(scope, receive, send)

    return TestClient(asked)
