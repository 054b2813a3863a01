"""What the report of a drill claims, what its page and its entry may contain, and which groups are its own."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from mm2py.backfill.verifying.planning import PartitionPlan, VerifyFacts
from mm2py.backfill.verifying.results import PartitionResult, RangeResult, Verification
from mm2py.dr.drill.entry import decode_drill, drill_text, encode_drill, merged
from mm2py.dr.drill.judgement import GoesOn, GroupDrill, PartitionDrill
from mm2py.dr.drill.page import report_page
from mm2py.dr.drill.printout import report_lines, verdict_line
from mm2py.dr.drill.report import DrillReport, report_body
from mm2py.dr.drill.shadow_groups import left_shadows, new_run, shadow_of
from mm2py.dr.readiness import NO_STANDING, ObstacleKind, ReadyFor, RecoveryObstacle, RecoveryReadiness
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.author import Author
from mm2py.topics.filters import GroupFilter

A, B = ClusterAlias("A"), ClusterAlias("B")
HOSTILE = '<img src=x onerror="alert(1)">&\'\x1b[31m'


def place(
    result: GoesOn = GoesOn.EXACT, text: str = "", *, topic: str = "orders", partition: int = 0
) -> PartitionDrill:
    return PartitionDrill(topic, partition, f"A.{topic}", 20, 17, result, None, text)


def compared(*, records: int = 5, is_equal: bool = True, problem: str = "") -> Verification:
    """Return a comparison of one partition."""
    roots = bytes(16), bytes(16) if is_equal else bytes([1] * 16)
    result = RangeResult(0, 0, 0, records, 0, 100, *roots, b"", b"", b"", -1, problem)
    plan = PartitionPlan(VerifyFacts("orders", 0, "A.orders", [], (0, 5), (0, 5)))
    plan.ranges = [plan.facts.template]
    found = PartitionResult(plan, [result], differing=0 if is_equal else 1)
    return Verification(("A", "B"), [found], [], [], 7, 0.1)


def report(**changes: Any) -> DrillReport:
    readiness = RecoveryReadiness(
        Flow(A, B), 2_000, ReadyFor.YES, ReadyFor.YES, "", 0.4, 12, False, 1_000, NO_STANDING, (), True
    )
    whole = DrillReport(
        run="20261129T073000-0a0a0a",
        flow="A->B",
        source="A",
        target="B",
        begun_ms=1_000,
        ended_ms=9_000,
        author=Author("ops", "site-b", ""),
        to="latest",
        to_ms=None,
        readiness=readiness,
        groups=(GroupDrill("billing", "Empty", "shadow", (place(), place(GoesOn.AT_END, partition=1))),),
        steps={"positions": 0.5, "commits": 0.25, "first-records": 0.25, "again": 100.0},
        verification=compared(),
        left_behind={},
    )
    return replace(whole, **changes)


def with_obstacle(kind: ObstacleKind, *, of_failover: bool = True) -> DrillReport:
    obstacle = RecoveryObstacle(kind, "something is in the way", "Do this.", of_failover=of_failover)
    return report(readiness=replace(report().readiness, obstacles=(obstacle,)))


def test_a_drill_in_which_all_is_well_is_proven() -> None:
    found = report()
    assert (found.reasons, found.exit_code, str(found.verdict)) == ([], 0, "proven")
    assert found.recovery_s == 1.0  # what a drill does beside the steps of a failover does not count
    assert verdict_line(found).startswith("PROVEN: ")


@pytest.mark.parametrize(
    "result", [GoesOn.READS_AGAIN, GoesOn.SKIPS, GoesOn.DIFFERS, GoesOn.NO_PLACE, GoesOn.NOT_KNOWN]
)
def test_one_place_that_is_not_exact_spoils_the_proof(result: GoesOn) -> None:
    found = report(groups=(*report().groups, GroupDrill("mail", "Empty", "s", (place(), place(result, "so it is")))))
    assert (found.reasons, found.exit_code) == (["group mail in orders-0: so it is"], 3)
    assert verdict_line(found).startswith("NOT PROVEN: ")
    assert report_body(found)["groups"][1]["is_proven"] is False


def test_nothing_that_is_not_known_is_proven() -> None:
    assert report(groups=()).reasons == ["there is no group to drill"]
    assert report(groups=(GroupDrill("new", "Empty", "", (), "it has committed nothing"),)).exit_code == 3
    left = GroupDrill("shared", "Empty", "", (), "it is a share group: not moved", is_left=True)
    assert report(groups=(left,)).reasons == ["there is no group to drill"]
    assert report(groups=(left, *report().groups)).reasons == []


@pytest.mark.parametrize("kind", [kind for kind in ObstacleKind if kind is not ObstacleKind.GROUPS])
def test_what_stands_in_the_way_of_a_failover_spoils_the_proof(kind: ObstacleKind) -> None:
    assert with_obstacle(kind).exit_code == 3
    assert with_obstacle(kind, of_failover=False).exit_code == 0


def test_groups_are_judged_by_the_drill_itself() -> None:
    """``dr check`` doubts groups for which nothing is committed on the target: a failover commits for them."""
    assert with_obstacle(ObstacleKind.GROUPS).exit_code == 0


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (compared(is_equal=False), "copies differ from their source"),
        (compared(problem="a batch is damaged"), "not all copies could be compared"),
        (compared(records=0), "no record was compared"),
    ],
)
def test_copies_that_are_not_equal_spoil_the_proof(found: Verification, why: str) -> None:
    assert report(verification=found).reasons == [why]


def test_without_a_comparison_the_report_says_so() -> None:
    found = report(verification=None)
    assert found.exit_code == 0
    assert "Copies: not compared, as was asked." in report_lines(found)
    assert report_body(found)["verification"] is None


class _Tags(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_names_from_outside_are_nothing_but_text_on_the_page() -> None:
    hostile = report(
        flow=f"A->{HOSTILE}",
        author=Author(HOSTILE, HOSTILE, HOSTILE),
        to=HOSTILE,
        groups=(GroupDrill(HOSTILE, HOSTILE, HOSTILE, (place(GoesOn.SKIPS, HOSTILE, topic=HOSTILE),), HOSTILE),),
        left_behind={HOSTILE: HOSTILE},
    )
    plain, found = _Tags(report_page(report())), _Tags(report_page(hostile))
    assert set(found.tags) <= {*plain.tags, "ul", "li", "code"}
    assert set(found.attributes) <= {"lang", "charset", "http-equiv", "content", "class"}
    assert "alert(1)" in found.text
    assert "\x1b" not in report_page(hostile)


def test_the_page_asks_nobody_for_anything() -> None:
    page = report_page(report())
    assert not {"script", "img", "link", "iframe", "a", "form"} & set(_Tags(page).tags)
    assert "http://" not in page
    assert "https://" not in page
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_what_is_kept_of_a_drill_is_read_again() -> None:
    found = report(groups=(GroupDrill("mail", "Empty", "s", (place(GoesOn.SKIPS, "it would skip 2 record(s)"),)),))
    kept = decode_drill(encode_drill(found, "1.2.3"))
    assert kept is not None
    assert (kept.run, kept.flow, kept.verdict, kept.recovery_s) == (found.run, "A->B", "not-proven", 1.0)
    assert kept.author == found.author
    assert kept.summary is not None
    assert kept.summary["not_proven"][0]["group"] == "mail"
    text = drill_text(kept)
    assert "not-proven" in text
    assert "NOT PROVEN" in text
    assert merged([[kept], [kept]]) == [kept]


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{}", b"\xff", b'{"run": 5}', b"[" * 5_000, b"{" + b'"a":1' * 9])
def test_records_of_others_are_no_drills(value: bytes | None) -> None:
    assert decode_drill(value) is None


def test_an_entry_of_somebody_else_steers_no_terminal() -> None:
    found = json.loads(encode_drill(report(), "1.2.3")) | {"flow": HOSTILE, "text": HOSTILE, "user": HOSTILE}
    kept = decode_drill(json.dumps(found).encode())
    assert kept is not None
    assert "\x1b" not in drill_text(kept)


def test_only_groups_of_drills_of_this_source_are_removed() -> None:
    run = new_run(1_764_000_000_000, random.Random(1))
    ours = shadow_of(A, run, "billing.eu\nx")
    others = [
        shadow_of(B, run, "billing"),
        shadow_of(ClusterAlias("A2"), run, "billing"),
        "mm2py-drill.A.billing",
        "mm2py-drill.A.20261129T073000-0a0a0.billing",
        f"x{ours}",
        "billing",
    ]
    assert left_shadows([ours, *others], A) == [ours]
    assert left_shadows([ours], A, begun_before_ms=1_764_000_000_000) == []
    assert left_shadows([ours], A, begun_before_ms=1_764_000_001_000) == [ours]
    assert left_shadows(["mm2py-drill.A.99999999T999999-0a0a0a.x"], A, begun_before_ms=1_000)


def test_groups_of_drills_get_no_checkpoints() -> None:
    """Else the flow back would commit for them on the source."""
    names = GroupFilter([".*"])
    assert names.should_replicate("billing")
    assert not names.should_replicate(shadow_of(A, new_run(0, random.Random(1)), "billing"))
    assert names.decision("mm2py-drill.A.x").why_not is not None
