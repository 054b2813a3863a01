"""mm2.properties.example and docs/settings.md are true: they are what the table of settings says, with its defaults."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mm2py.config import keys, tables
from mm2py.config.configuration import load_configuration
from mm2py.config.flow_properties import stored_keys
from mm2py.config.inventory import take_inventory
from mm2py.config.pages import example_text, settings_page
from mm2py.config.properties import parse_properties
from mm2py.config.recovery_keys import CREDENTIALS
from mm2py.config.row import Key, Status
from mm2py.config.settings import Configuration, FlowSettings

EXAMPLE = Path(__file__).parents[3] / "mm2.properties.example"
SETTING = re.compile(r"[A-Za-z0-9.>-]+ = ")


def uncommented(marks: str) -> bytes:
    """The example with the lines that begin with so many ``#`` made settings, continued lines included."""
    lines, continued = [], False
    for line in EXAMPLE.read_text("ascii").splitlines():
        bare = line.removeprefix(marks)
        is_setting = line.startswith(marks) and (continued or SETTING.match(bare) is not None)
        continued = is_setting and bare.endswith("\\")
        lines.append(bare if is_setting else line)
    return "\n".join(lines).encode()


@pytest.fixture
def loaded(tmp_path: Path) -> Any:
    def load(text: bytes) -> Configuration:
        path = tmp_path / "mm2.properties"
        path.write_bytes(text)
        return load_configuration(path, None)

    return load


def comparable(configuration: Configuration) -> dict[str, Any]:
    (settings,) = configuration.flows
    return {
        "memory": configuration.memory_max_bytes,
        "metrics": configuration.metrics_partitions_max,
        **{
            field.name: getattr(settings, field.name)
            for field in fields(settings)
            if field.name not in ("topic_filter", "config_filter", "policy", "copy_modes")
        },
    }


def test_writing_down_every_default_changes_nothing(loaded: Any) -> None:
    configuration = loaded(uncommented("#"))
    assert configuration.warnings == ()
    assert comparable(configuration) == comparable(loaded(EXAMPLE.read_bytes()))


def test_the_shown_defaults_are_those_of_the_code() -> None:
    entries = parse_properties(uncommented("#")).entries
    items, problems = take_inventory(entries, ["A", "B"])
    assert problems == []
    compared = set()
    for item in items:
        assert item.key is not None and item.advice is None, item.entry.key
        if item.key.name in (
            "clusters",
            "enabled",
            "bootstrap.servers",
            keys.OFFSETS_TOPIC.name,  # default in the layers; the test above compares it
            keys.GROUP_ID.name,
            keys.CONFIGS_TOPIC.name,
            keys.STATUS_TOPIC.name,
        ):
            continue
        assert item.key.kind(item.entry.value) == item.key.default, item.entry.key
        compared.add(item.key.name)
    assert len(compared) > 20


def test_examples_without_a_default_are_legal_and_have_none(loaded: Any) -> None:
    configuration = loaded(uncommented("##"))
    assert configuration.warnings == ()
    settings = configuration.flows[0]
    assert settings.compression == "zstd"
    assert settings.bytes_per_second_max == 52_428_800
    assert settings.source.client_id == settings.target.client_id == "mirror"


def test_every_setting_that_works_is_in_the_example_and_no_other() -> None:
    entries = parse_properties(uncommented("#") + b"\n" + uncommented("##")).entries
    items, _ = take_inventory(entries, ["A", "B"])
    shown = {item.key.name for item in items if item.key is not None}
    all_tables = [
        tables.FILE,
        tables.CONNECTOR,
        tables.FLOW_ONLY,
        tables.WORKER,
        tables.OWN_TOP,
        tables.OWN_CLUSTER,
        tables.OWN_FLOW,
    ]
    everything: list[Key[Any]] = [key for table in (*all_tables, *tables.CLIENTS.values()) for key in table.values()]
    everything += [*tables.FILE_FAMILIES, *(key for key in tables.CONNECTOR_FAMILIES if key.is_family)]
    assert shown == {key.name for key in everything if key.status is Status.WORKS}


def test_what_is_refused_or_not_there_yet_is_not_promised() -> None:
    """A key may work for one client and do nothing for another: only those that work are shown."""
    entries = parse_properties(uncommented("#") + b"\n" + uncommented("##")).entries
    items, _ = take_inventory(entries, ["A", "B"])
    assert {item.key.status for item in items if item.key is not None} == {Status.WORKS}


def test_both_pages_are_made_of_the_table() -> None:
    """``python -m mm2py.config.pages`` makes them."""
    assert EXAMPLE.read_text() == example_text()
    assert (EXAMPLE.parent / "docs" / "settings.md").read_text() == settings_page()


def test_each_setting_that_is_a_field_is_one_of_the_typed_settings() -> None:
    named = [key.field for key in tables.FIELDS]
    assert len(named) == len(set(named)) > 20
    assert set(named) <= {field.name for field in fields(FlowSettings)}


def test_a_row_says_what_a_change_concerns_where_it_is_a_setting_of_a_flow() -> None:
    """Else it would change nothing while it runs, and nothing would say so."""
    rows = [key for section in tables.SECTIONS for key in section.rows]
    assert [key.name for key in rows if key.parts and key not in stored_keys().values()] == []


def test_the_page_has_a_row_for_every_setting_that_works() -> None:
    named = {line.split("`")[1].removesuffix("...") for line in settings_page().splitlines() if line.startswith("| `")}
    every = (tables.FILE, tables.CONNECTOR, tables.FLOW_ONLY, tables.WORKER, tables.OWN_TOP, tables.OWN_CLUSTER)
    keys_of = [key for table in (*every, tables.OWN_FLOW, *tables.CLIENTS.values()) for key in table.values()]
    families = [*tables.FILE_FAMILIES, *(key for key in tables.CONNECTOR_FAMILIES if key.is_family), CREDENTIALS]
    assert named == {key.name for key in [*keys_of, *families] if key.status is Status.WORKS}


def test_a_setting_without_words_of_its_own_has_those_that_stand_above_it_in_the_example() -> None:
    rows = {key.name: key for section in tables.SECTIONS for key in section.rows}
    assert rows["sasl.oauthbearer.scope"].text.startswith("OAUTHBEARER: a token server")
    page = settings_page()
    (line,) = [one for one in page.splitlines() if one.startswith("| `sasl.oauthbearer.token.endpoint.url`")]
    assert "OAUTHBEARER: a token server" in line
