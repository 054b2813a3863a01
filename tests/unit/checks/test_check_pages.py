"""docs/checks/ says what the table of checks says, and the output and its JSON show all of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mm2py.checks.body import ChecksBody
from mm2py.checks.facts import Unanswered
from mm2py.checks.pages import check_page, index_page, with_rights_table
from mm2py.checks.printout import signs_for, text_of_checks
from mm2py.checks.results import CheckResult, CheckState, counted, exit_of_checks, in_order, ok, unknown
from mm2py.checks.run import fell_silent, two_clusters, way_key, ways_of
from mm2py.checks.table import CHECKS, CheckRow
from mm2py.cli.check import parse_arguments, run
from mm2py.errors import ConfigError
from mm2py.status.bodies import json_of
from tests.fakes.check_answers import cluster, configuration, flow_answers

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "checks"
FAILURE = CheckResult("MM0401", CheckState.FAILED, "A->B", "A denies READ on topic orders", "kafka-acls ...")


@pytest.mark.parametrize("row", CHECKS, ids=lambda row: row.code)
def test_a_page_is_what_the_table_says(row: CheckRow) -> None:
    assert (FOLDER / f"{row.code}.md").read_text() == check_page(row)


def test_there_is_no_page_without_a_row_and_the_index_names_all() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {"README.md", *(f"{row.code}.md" for row in CHECKS)}
    assert (FOLDER / "README.md").read_text() == index_page()
    rights = (ROOT / "docs" / "rights.md").read_text()
    assert with_rights_table(rights) == rights


def test_codes_are_unique_and_of_one_form() -> None:
    codes = [row.code for row in CHECKS]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"MM\d{4}", code) for code in codes)
    assert codes == sorted(codes)


def test_the_code_names_each_check_and_no_other() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "mm2py" / "checks").glob("*.py") if path.name != "table.py")
    assert set(re.findall(r"MM\d{4}", sources)) == {row.code for row in CHECKS}


def test_lines_have_a_sign_a_code_and_what_to_do_below() -> None:
    results = in_order(
        [
            FAILURE,
            ok("MM0101", "A", "A answers at a1:9092 (1 broker, 4.3)"),
            unknown("MM0404", "A->B", "Only writing would show it"),
            unknown("MM0601", "A->B", "C does not answer", waits_for="C"),
            unknown("MM0701", "A->B", "C does not answer", waits_for="C"),
        ]
    )
    assert text_of_checks(results).splitlines() == [
        "Addresses",
        "√ MM0101 A answers at a1:9092 (1 broker, 4.3)",
        "",
        "Rights",
        "× MM0401 A->B: A denies READ on topic orders.",
        "         kafka-acls ...",
        "? MM0404 A->B: Only writing would show it.",
        "",
        "? 2 checks could not be made, because mm2py cannot ask C (--json names them).",
        "",
        "1 ok (√); 0 warning (‼); 1 failed (×): MM0401; 3 not checkable (?). Each code has a page in docs/checks.",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "no-such-encoding"])
def test_a_terminal_that_cannot_show_the_signs_gets_others(encoding: str) -> None:
    assert text_of_checks([FAILURE], signs_for(encoding)).isascii()
    assert "\nX MM0401 " in text_of_checks([FAILURE], signs_for(encoding))
    assert "\n× MM0401 " in text_of_checks([FAILURE], signs_for("utf-8"))


def test_only_a_failure_fails() -> None:
    warning = CheckResult("MM0102", CheckState.WARNING, "A", "One is away", "Start it.")
    assert exit_of_checks([warning, unknown("MM0404", "A->B", "Not known")]) == 0
    assert exit_of_checks([warning, FAILURE]) == 1


def test_the_json_has_every_field_of_each_result() -> None:
    body = json.loads(json_of(ChecksBody.of(["A->B"], [FAILURE])))
    assert body == {
        "format": 1,
        "exit_code": 1,
        "flows": ["A->B"],
        "results": [
            {
                "code": "MM0401",
                "category": "Rights",
                "state": "failed",
                "subject": "A->B",
                "sentence": "A denies READ on topic orders",
                "hint": "kafka-acls ...",
                "items": [],
                "commands": [],
                "waits_for": "",
            }
        ],
    }


def test_many_names_are_counted() -> None:
    assert counted("topic", ["a"]) == "topic a"
    assert counted("topic", ["a", "b", "c", "d", "e"]) == "5 topics (a, b, c and 2 more)"


def test_source_and_target_are_two_clusters() -> None:
    (found,) = two_clusters(flow_answers())
    assert found.state is CheckState.OK
    (found,) = two_clusters(flow_answers(target=cluster("B", cluster_id="id-A")))
    assert (found.code, found.state) == ("MM0105", CheckState.FAILED)
    assert not list(two_clusters(flow_answers(target=cluster("B", silent=Unanswered("away", "")))))


def test_a_cluster_that_falls_silent_while_it_is_asked_fails() -> None:
    answers = flow_answers()
    reached = {way_key(answers.settings.source): answers.source, way_key(answers.settings.target): answers.target}
    assert not list(fell_silent(answers, reached))
    silent = replace(answers, target=cluster("B", silent=Unanswered("It took more than 30 s.", "Check it.")))
    (found,) = fell_silent(silent, reached)
    assert (found.code, found.state) == ("MM0101", CheckState.FAILED)
    assert found.sentence == "B does not answer any more: It took more than 30 s."
    away_at_first = {**reached, way_key(answers.settings.target): silent.target}
    assert not list(fell_silent(silent, away_at_first)), "it is said once"


def test_a_cluster_is_asked_once_if_all_flows_reach_it_in_the_same_way() -> None:
    flows = configuration(**{"B->A.enabled": True}).flows
    ways = ways_of(flows)
    assert [(way.subject, way.is_read, way.is_written) for way in ways.values()] == [
        ("A", True, True),
        ("B", True, True),
    ]
    other = configuration(
        **{
            "B->A.enabled": True,
            "A.consumer.security.protocol": "SASL_PLAINTEXT",
            "A.consumer.sasl.mechanism": "PLAIN",
            "A.consumer.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="reader" password="canary";',
        }
    ).flows
    assert [way.subject for way in ways_of(other).values()] == ["A (A->B, source)", "B", "A (B->A, target)"]
    assert way_key(other[0].source) != way_key(other[1].target)


@pytest.mark.parametrize("arguments", [[], ["f", "g"], ["f", "--pro"]])
def test_wrong_arguments_name_the_help(arguments: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"mm2py check --help"):
        parse_arguments(arguments)


def test_clusters_that_do_not_answer_fail_once_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:1\nA->B.enabled=true\n"
    )
    assert run([str(file)]) == 1
    printed = capsys.readouterr().out
    failed = [line for line in printed.splitlines() if line.startswith("×")]
    assert [line.partition(":")[0] for line in failed] == ["× MM0101 A does not answer", "× MM0101 B does not answer"]
    assert re.search(r"\? \d+ checks could not be made, because mm2py cannot ask B", printed)
    assert run([str(file), "--json", "--pre"]) == 1
    states = {one["state"] for one in json.loads(capsys.readouterr().out)["results"]}
    assert states == {"ok", "failed", "not checkable"}


def test_a_flow_that_is_refused_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:1\nA->B.enabled=true\n"
        "A.security.protocol=SASL_PLAINTEXT\nA.sasl.mechanism=GSSAPI\ntopcis=orders\n"
    )
    assert run([str(file)]) == 1
    printed = capsys.readouterr().out
    assert "× MM0001 A->B: " in printed
    assert "‼ MM0002 " in printed
