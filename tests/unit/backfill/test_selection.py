"""What a backfill stores to select topics that only its file selects: these alone, and nothing else of the file."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from mm2py.backfill.selection import SettingsSelection, selection_of
from mm2py.errors import ConfigError
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.shared_settings.follow import merged_or_file
from tests.scenarios.config_world import file_of


def found(file: Mapping[str, str], stored: FlowConfig | None, *topics: str) -> SettingsSelection | None:
    settings_file = file_of(file)
    (by_file,) = settings_file.configuration().flows
    settings = merged_or_file(settings_file, by_file, stored)
    return selection_of(stored, settings_file, by_file, topics, settings=settings)


def config(**properties: str) -> FlowConfig:
    return FlowConfig({"enabled": "true", **properties}, DecidedBy.FILE, 3)


def test_only_the_topics_are_added_and_what_else_differs_is_named() -> None:
    selection = found({"topics": "one,t.0,seven", "offset.lag.max": "9"}, config(topics="one"), "t.0")
    assert selection is not None
    assert selection.wanted.properties == {"enabled": "true", "topics": "one,t\\.0"}
    assert (selection.wanted.by, selection.wanted.version) == (DecidedBy.APPLY, 4)
    assert [one.name for one in selection.added] == ["topics"]
    assert [one.name for one in selection.left] == ["offset.lag.max", "topics"]
    chosen = [topic for topic in ("one", "t.0", "tx0", "seven") if selection.settings.replicates(topic)]
    assert chosen == ["one", "t.0"]


def test_nothing_is_stored_where_the_topics_are_selected_or_no_settings_are_stored_or_the_file_does_not_say_so() -> (
    None
):
    assert found({"topics": "one,two"}, config(topics="one,two"), "two") is None
    assert found({"topics": "one,two"}, None, "two") is None
    assert found({"topics": "one"}, config(topics="one"), "two") is None


def test_the_settings_that_mirrormaker_2_wrote_over_ours_do_not_count() -> None:
    by_mm2 = FlowConfig({"enabled": "true", "topics": "java"}, DecidedBy.MM2, 0, previous=config(topics="one"))
    selection = found({"topics": "one,two"}, by_mm2, "two")
    assert selection is not None
    assert selection.wanted.properties["topics"] == "one,two"


def test_a_topic_that_another_stored_setting_leaves_out_is_refused_with_the_way() -> None:
    with pytest.raises(ConfigError, match=r"leave 'two' out, also if it is added to topics\. mm2py apply a file first"):
        found({"topics": "one,two"}, config(**{"topics": "one", "topics.exclude": "t.*"}), "two")
