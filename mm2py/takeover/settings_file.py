"""The account of what runs, and the settings file that follows from it, checked as a worker would read it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from mm2py.config.configuration import SettingsFile
from mm2py.config.properties import parse_properties
from mm2py.errors import ConfigError
from mm2py.takeover.account import AccountedSetting, SettingsAccount, account_for, refused
from mm2py.takeover.file_text import settings_text
from mm2py.takeover.what_runs import WhatRuns


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """What a takeover writes."""

    account: SettingsAccount
    text: str

    def __repr__(self) -> str:
        return f"WrittenFile({self.account!r})"  # the text may hold credentials


def file_of(runs: WhatRuns, without: Collection[str] = ()) -> WrittenFile:
    """Return the file that does the same, and the account of all settings.

    Raises:
        ConfigError: a name of ``without`` is no setting of what runs.
    """
    account = account_for(runs.settings, runs.clusters, extra=runs.extra, without=without)
    known = {name for one in account.accounted for name in (one.name, f"{one.place}: {one.name}")}
    if strangers := [name for name in without if name not in known]:
        raise ConfigError(f"--without {strangers[0]}: {runs.said} has no such setting.", remedy="See its name above.")
    text = settings_text(account.entries, runs.clusters, runs.said)
    refusals = [] if account.refused else _refusals_of(text)
    return WrittenFile(replace(account, accounted=(*account.accounted, *refusals)), text)


def _refusals_of(text: str) -> list[AccountedSetting]:
    """Return why a worker would not run the flows of this file."""
    path: Any = "what runs"  # it only stands in messages
    try:
        configuration = SettingsFile(path, parse_properties(text), ()).configuration()
    except ConfigError as error:
        return [refused("all together", "settings", str(error).rstrip("."), "Mend it where it runs.")]
    return [
        refused("all together", str(flow), error.what.rstrip("."), error.remedy or "Mend it where it runs.")
        for flow, error in configuration.refused.items()
    ]
