"""``mm2py config FILE``: every setting that counts, with its value and where it is written.

It reads the file and asks no cluster. MirrorMaker 2 logs the settings of each client at start, without their origin.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandParser
from mm2py.command_lines import with_file
from mm2py.config import keys
from mm2py.config.configuration import SettingsFile, as_argument, read_settings_file
from mm2py.config.effective_settings import (
    EffectiveSetting,
    EffectiveSettings,
    FlowSwitch,
    SettingsOfClient,
    changed_only,
    effective_settings,
)
from mm2py.errors import ConfigError
from mm2py.flow import Flow, parse_flow
from mm2py.output import say, write_out
from mm2py.secret import printable
from mm2py.status.bodies import ConfigBody, json_of
from mm2py.status.exit_codes import EXIT_DONE
from mm2py.text_table import text_table

STORED_NOTE: Final = (
    "This is what the file says. Workers that run follow the settings that are stored on the target: mm2py apply FILE"
    " --dry-run shows where they differ."
)


class ConfigArguments(argparse.Namespace):
    """What follows ``config`` on the command line."""

    file: Path
    flow: str | None
    changed: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> ConfigArguments:
    """Read what follows ``config`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "config",
        "Lists every setting that counts, by flow and by client, with its value and where it is written, and names "
        "the keys of the file that mm2py does not use. Secrets are hidden. No cluster is asked. Exit codes: 0 done; 2 "
        "wrong file or arguments.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a properties file as MirrorMaker 2 reads it")
    parser.add_argument("--flow", metavar="A->B", help="only this flow, enabled or not")
    parser.add_argument("--changed", action="store_true", help="only what differs from the defaults")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args(arguments, namespace=ConfigArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``; or the file has no such clusters.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    configuration = file.configuration()
    only = None if options.flow is None else _flow_in(file, options.flow)
    found = effective_settings(file, configuration, only)
    if options.changed:
        found = changed_only(found)
    if options.json:
        write_out(json_of(ConfigBody.of(str(options.file), found, exit_code=EXIT_DONE)))
        return EXIT_DONE
    write_out(text_of(found))
    say(with_file(STORED_NOTE, as_argument(options.file)))
    return EXIT_DONE


def _flow_in(file: SettingsFile, name: str) -> Flow:
    """Return a flow between two clusters of a file. Raises: ConfigError, there is no such cluster."""
    flow = parse_flow(name)
    clusters = keys.CLUSTERS.kind(file.properties.entries[keys.CLUSTERS.name].value)
    for alias in (flow.source, flow.target):
        if alias not in clusters:
            raise ConfigError(f"{file.path} has no cluster {alias!r}.", remedy=f"It has {', '.join(clusters)}.")
    return flow


def text_of(found: EffectiveSettings) -> str:
    """Return what people read."""
    lines: list[str] = []
    for flow in found.flows:
        lines += ["", f"{flow.flow} ({flow.switch})"]
        if flow.switch is FlowSwitch.REFUSED:
            lines.append(f"  {flow.why_refused}")
        lines += [f"  {line}" for client in flow.clients for line in _client(client)]
        if not flow.clients:
            lines.append("  every setting has its default")
    for client in (*found.groups, *found.worker):
        lines += ["", *_client(client)]
    if found.unused:
        lines += ["", "Keys of the file that mm2py does not use:"]
        rows = [["" if one.line is None else str(one.line), one.key, one.why] for one in found.unused]
        lines += [f"  {line}" for line in text_table(["line", "key", "why"], rows, right=(0,))]
    return "".join(f"{printable(line)}\n" for line in lines[1:])


def _client(client: SettingsOfClient) -> Iterator[str]:
    at = "of" if client.client in ("source consumer", "source admin", "target admin") else "into"
    yield f"{client.client} {at} {client.cluster}" if client.cluster else client.client
    rows = [[one.name, one.origin, _value(one)] for one in client.settings]
    yield from (f"  {line}" for line in text_table(["setting", "from", "value"], rows))


def _value(setting: EffectiveSetting) -> str:
    value = "(not set)" if setting.value is None else setting.value or "(empty)"
    return f"{value} ({setting.note})" if setting.note else value
