"""What the command line of ``mm2py backfill`` takes, and what it makes of a master."""

from __future__ import annotations

import os

import pytest

from mm2py.backfill.hold import NotHeld, outlives_failed_start, refuse_held, refuse_living_driver
from mm2py.cli.backfill import _complete, driver_name, nothing_new, parse_arguments, slots_of, where_of, with_attempts
from mm2py.errors import ConfigError
from mm2py.flow import parse_flow
from mm2py.records.backfill_record import Backfill, BackfillState, Range


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("earliest", "earliest"),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("orders:0=12,a:b:1=0", {("orders", 0): 12, ("a:b", 1): 0}),
    ],
)
def test_places_are_words_times_or_offsets(text: str, where: object) -> None:
    assert where_of(text, ["earliest"]) == where


@pytest.mark.parametrize("text", ["latest", "2023-11-14T22:13:20", "orders=1", "orders:x=1", "orders:1=-1", "=", ""])
def test_other_places_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ConfigError, match="Write "):
        where_of(text, ["earliest"])


def test_a_backfill_that_is_resumed_has_its_topics_already() -> None:
    with pytest.raises(ConfigError, match="take no --topics"):
        parse_arguments(["f", "A->B", "--resume", "0badcafe", "--topics", "t"])
    for name in ("--where", "--select"):
        with pytest.raises(ConfigError, match=f"take no .*{name}"):
            parse_arguments(["f", "A->B", "--resume", "0badcafe", name, "key"])
    with pytest.raises(ConfigError, match="not allowed with"):
        parse_arguments(["f", "A->B", "--resume", "0badcafe", "--abandon", "0badcafe"])


def test_a_job_without_the_result_of_a_partition_has_failed() -> None:
    backfill = Backfill("0badcafe", {"t": {0: Range(0, 9), 1: Range(0, 9)}}, ())
    rows: list[dict[str, object]] = [{"topic": "t", "partition": 1}]
    assert "1 partition(s) have no result, the first is t-0" in str(_complete(rows, backfill).error)
    assert _complete([*rows, {"topic": "t", "partition": 0}], backfill).error is None


def test_a_local_master_tries_a_task_four_times() -> None:
    assert with_attempts("local[2]") == "local[2,4]"
    assert with_attempts("local") == "local[1,4]"
    assert with_attempts("local[*]") == "local[*,4]"
    assert with_attempts("local[2,1]") == "local[2,1]"
    assert with_attempts("spark://host:7077") == "spark://host:7077"


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a user id of its own."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 1000710000")

    monkeypatch.setattr("mm2py.login.getpass.getuser", nameless)
    assert driver_name().startswith(f"{os.getuid()}@")


def test_slots_are_those_of_a_local_master() -> None:
    assert (slots_of("local[3]"), slots_of("local[3,4]"), slots_of("local")) == (3, 3, 1)
    assert (slots_of("local[*]") or 0) >= 1
    assert slots_of("spark://host:7077") is None


def test_a_driver_that_wrote_just_now_runs_and_one_that_is_silent_is_dead() -> None:
    backfill = Backfill("0badcafe", {"t": {0: Range(0, 9)}}, (), seen_at_ms=100_000)
    with pytest.raises(NotHeld, match="wrote 5 s ago"):
        refuse_living_driver(backfill, 105_000)
    refuse_living_driver(backfill, 121_000)
    refuse_living_driver(Backfill("0badcafe", {}, (), state=BackfillState.DONE, seen_at_ms=100_000), 100_001)


def test_a_topic_has_one_backfill_at_a_time() -> None:
    other = Backfill("0badcafe", {"t": {0: Range(0, 9)}}, ())
    with pytest.raises(NotHeld, match="--abandon 0badcafe"):
        refuse_held(["a", "t"], [other])
    refuse_held(["a"], [other])
    refuse_held(["t"], [Backfill("0badcafe", {"t": {}}, (), state=BackfillState.STOPPED)])


@pytest.mark.parametrize(
    ("where", "run", "stays"), [("", 0, False), ("", 1, False), ("key = 'a'", 0, False), ("key = 'a'", 1, True)]
)
def test_a_filtered_backfill_that_cannot_be_resumed_keeps_its_topics(where: str, run: int, stays: bool) -> None:
    """A cluster failed just when a filtered backfill was resumed, and the workers copied the rest unfiltered."""
    backfill = Backfill("0badcafe", {"t": {0: Range(0, 9)}}, (), run=run, where=where)
    assert outlives_failed_start(backfill) is stays


def test_without_topics_the_refusal_says_how_one_that_only_the_file_selects_is_copied() -> None:
    """The story: it said that topics have to be added first. Who applied the file then let the workers begin them."""
    error = nothing_new(parse_flow("A->B"))
    assert error.remedy.startswith("Name topics with --topics. Those that only FILE selects are held first, and")
    assert "do not run mm2py apply before" in error.remedy
