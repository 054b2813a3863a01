"""docs/why.md has a table of causes. Tests on real brokers compare answers with it; here: each row has such a test."""

from __future__ import annotations

import re
from pathlib import Path

from mm2py.status.not_copied import Reason
from tests.cluster.why_table import rows

CLUSTER = Path(__file__).parents[2] / "cluster"
ASKS = re.compile(r"wait_for_cause|why_tells|cause=")
LEAST = 40


def test_each_cause_is_made_by_a_test_on_real_brokers() -> None:
    texts = [text for path in CLUSTER.rglob("test_*.py") if ASKS.search(text := path.read_text())]
    asked = {word for text in texts for word in re.findall(r'"([a-z0-9-]+)"', text)}
    assert [cause for cause in rows() if cause not in asked] == []
    assert len(rows()) >= LEAST


def test_each_reason_of_a_topic_has_a_cause() -> None:
    """``no-match`` is about a pattern, and so about no topic."""
    assert {row.reason for row in rows().values()} - {""} == {*map(str, Reason)} - {"no-match"}
