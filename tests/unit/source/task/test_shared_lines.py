"""A report on many topics or ACLs has lines of bounded length, and names all of them."""

from __future__ import annotations

import io
import re

from mm2py.flow import parse_flow
from mm2py.logs import make_logger
from mm2py_connectors.source.notices import LINE_MOST_CHARS, OWN_LINES_MOST, Notices, RefusedTopics, in_lines
from mm2py_connectors.source.refusals import TargetNotEmpty
from tests.fakes.virtual_time import VirtualClock


def test_every_text_is_named_in_parts_of_bounded_length() -> None:
    many = [f"topic-{number}" for number in range(1000)]
    parts = list(in_lines(many, most_chars=500))
    assert [text for part in parts for text in part] == many
    assert {sum(map(len, part)) <= 500 for part in parts} == {True}
    assert len(parts) < 25


def test_a_text_that_is_longer_than_a_line_has_its_own_line() -> None:
    assert [len(part) for part in in_lines(["a", "x" * 501, "b", "c"], most_chars=500)] == [1, 1, 2]
    assert list(in_lines([], most_chars=500)) == []


def test_topics_beyond_those_with_their_own_line_share_lines_of_bounded_length() -> None:
    stream = io.StringIO()
    lines = Notices(make_logger("info", "text", stream))
    topics = [f"topic-{number:03}" for number in range(OWN_LINES_MOST + 3)]
    for topic in topics:
        lines.say("changed", topic, detail="x" * (LINE_MOST_CHARS - 50))
    lines.end()
    own, shared = stream.getvalue().splitlines()[:OWN_LINES_MOST], stream.getvalue().splitlines()[OWN_LINES_MOST:]
    assert max(map(len, shared)) < LINE_MOST_CHARS + 100
    assert re.findall(r"topic-\d+", " ".join([*own, *shared])) == topics


def test_each_refused_topic_has_its_reason_in_the_log_also_in_a_shared_line() -> None:
    stream = io.StringIO()
    flow, names = parse_flow("A->B"), [f"t{number:02}" for number in range(OWN_LINES_MOST + 3)]
    RefusedTopics(make_logger("info", "text", stream), VirtualClock()).note(
        {name: TargetNotEmpty(flow, name, f"A.{name}", {int(name[1:]): 1}) for name in names}
    )
    for name in names:
        assert f"Topic {name} of A->B is refused: no position is stored for partition(s) {int(name[1:])}" in (
            stream.getvalue()
        )
