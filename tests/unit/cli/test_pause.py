"""What follows ``mm2py pause`` and ``mm2py resume`` on the command line."""

from __future__ import annotations

import pytest

from mm2py.cli.pause import parse_arguments
from mm2py.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], []),
        (["--topic", "orders"], [("orders", None)]),
        (["--topic", "a", "--topic", "b", "--topic", "a"], [("a", None), ("b", None)]),
        (["--partition", "orders/3"], [("orders", 3)]),
        (["--partition", "orders/0-2,7", "--topic", "b"], [("b", None), *(("orders", n) for n in (0, 1, 2, 7))]),
    ],
)
def test_topics_and_partitions_may_be_named_again_and_again(
    arguments: list[str], parts: list[tuple[str, int | None]]
) -> None:
    found = parse_arguments(["FILE", "A->B", *arguments, "--reason", " ticket 4711 "])
    assert found.parts == parts
    assert found.reason == "ticket 4711"


@pytest.mark.parametrize(
    "text", ["orders", "orders/", "/3", "orders/x", "orders/3-", "orders/5-3", "orders/-1", "o/3,3"]
)
def test_what_names_no_partition_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write it as orders/3"):
        parse_arguments(["FILE", "A->B", "--partition", text], "resume")


@pytest.mark.parametrize(
    "arguments", [["--partition", "t/0-100"], [one for n in range(101) for one in ("--topic", f"t{n}")]]
)
def test_more_than_a_hundred_at_once_are_refused(arguments: list[str]) -> None:
    with pytest.raises(ConfigError, match="101 topics and partitions are named"):
        parse_arguments(["FILE", "A->B", *arguments])


def test_a_reason_that_may_hold_a_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="credential"):
        parse_arguments(["FILE", "A->B", "--reason", "password=hunter2"])
