"""The dashboard and the alert rules ask only for what a worker's page has, and each alert has a page that helps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mm2py.flow import parse_flow
from mm2py.status.return_flow import ReturnFlow
from tests.fakes.metrics_page import Page
from tests.fakes.worker_snapshot import worker

ROOT = Path(__file__).resolve().parents[3]
BOARD = json.loads((ROOT / "deploy" / "grafana" / "mm2py.json").read_text())
RULES = (ROOT / "deploy" / "grafana" / "alerts.yaml").read_text()
RUNBOOKS = ROOT / "docs" / "runbooks"
ADDED_BY_PROMETHEUS = {"instance", "job"}

RULE = re.compile(
    r"- alert: (?P<alert>\w+)\n"
    r" +expr: (?P<expr>.+)\n"
    r"(?: +for: \d+[smh]\n)?"
    r" +labels: \{severity: (?:critical|warning)\}\n"
    r" +annotations:\n"
    r" +summary: '(?P<summary>.+)'\n"
    r" +runbook: (?P<runbook>\S+)\n"
)
ALERTS = [found.groupdict() for found in RULE.finditer(RULES)]

_SELECTOR = re.compile(r"([a-zA-Z_]\w*)(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right) \(([^)]*)\)")
_KEYWORDS = {"or", "unless", "and", "offset", "by", "without", "bool", "on", "ignoring", "group_left", "group_right"}


def queries() -> list[str]:
    targets = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    variables = [one["query"]["query"] for one in BOARD["templating"]["list"] if one["type"] == "query"]
    return [*targets, *(re.sub(r"label_values\((\w+), (\w+)\)", r"sum by (\2) (\1)", text) for text in variables)]


def asked_for(query: str) -> tuple[dict[str, set[str]], set[str]]:
    """Return the metrics of a query with the labels by which each is selected, and the labels by which it groups."""
    grouped = {label.strip() for found in _GROUPING.findall(query) for label in found.split(",") if label.strip()}
    rest = re.sub(r"\[[^\]]*\]|\b\d+(?:\.\d+)?[smhd]?\b", "", _GROUPING.sub("", query))
    metrics: dict[str, set[str]] = {}
    for found in _SELECTOR.finditer(rest):
        name, selected = found.group(1), found.group(2) or ""
        if name in _KEYWORDS or rest[found.end() :].lstrip().startswith("("):
            continue  # a function or an operator
        metrics.setdefault(name, set()).update(re.findall(r"(\w+)\s*[=!]~?", selected))
    return metrics, grouped


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(worker(), return_flows=[ReturnFlow(parse_flow("B->A"), "")])


@pytest.mark.parametrize("query", [*queries(), *(one["expr"] for one in ALERTS)])
def test_a_query_asks_for_series_and_labels_that_a_worker_shows(page: Page, query: str) -> None:
    metrics, grouped = asked_for(query)
    assert metrics
    for name, selected in metrics.items():
        shown = page.labels(name)
        assert shown, f"{name} is not on the page"
        assert selected | grouped <= {*shown[0], *ADDED_BY_PROMETHEUS}, name


def test_a_query_is_read_as_prometheus_reads_it() -> None:
    query = 'max by (a, b) (x{c="1",d=~"2"} offset 5m) / rate(y_total[5m]) > 0 or vector(0)'
    assert asked_for(query) == ({"x": {"c", "d"}, "y_total": set()}, {"a", "b"})


def test_every_alert_is_read_by_these_tests() -> None:
    assert len(ALERTS) == RULES.count("- alert:") > 10


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_page_that_says_what_it_means_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["runbook"] == f"docs/runbooks/{rule['alert']}.md"
    text = (ROOT / rule["runbook"]).read_text()
    assert re.findall(r"^#+ .*$", text, re.MULTILINE) == [
        f"# {rule['alert']}",
        "## What to look at",
        "## What to do",
    ]


def test_there_is_no_page_without_its_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_names_only_metrics_that_a_worker_shows(page: Page, path: Path) -> None:
    names = set(re.findall(r"\b(?:mm2py_|kafka_|process_)\w+", path.read_text()))
    assert names <= {one.name for one in page.samples}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_what_an_alert_says_has_labels_that_its_query_keeps(page: Page, rule: dict[str, Any]) -> None:
    said = set(re.findall(r"\$labels\.(\w+)", rule["summary"]))
    metrics, grouped = asked_for(rule["expr"])
    kept = grouped or set().union(*(page.labels(name)[0] for name in metrics))
    assert said <= kept


def test_each_panel_says_what_it_shows_and_has_a_place_of_its_own() -> None:
    places = set()
    for panel in BOARD["panels"]:
        assert panel["title"] and panel["description"].endswith(".") and panel["targets"]
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & places, panel["title"]
        places |= cells
