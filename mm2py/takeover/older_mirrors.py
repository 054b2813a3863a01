"""The client files of MirrorMaker 1 and of the Go mirror maker: what becomes of each of their settings. Pure.

What counts of such a file says ``mm2py/mirror/client_file.py``, and what a settings file has under that name the table
of settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from mm2py.config.properties import PropertyEntry
from mm2py.flow import ARROW
from mm2py.mirror.client_file import ClientFile, ClientRole, read_client_file
from mm2py.mirror.request import TARGET, MirrorRequest
from mm2py.takeover.account import (
    AccountedSetting,
    ProposedSetting,
    SettingOutcome,
    SettingsAccount,
    account_for,
    nothing,
)

_NO_COUNTERPART: Final = "bytes are copied as they are and exactly once, and positions are mm2py's own"


@dataclass(frozen=True, slots=True)
class OldClientFile:
    """A file as it was read."""

    name: str
    role: ClientRole
    entries: Mapping[str, PropertyEntry]

    def client(self) -> ClientFile:
        """Return what counts of it. Raises: ConfigError, see ``read_client_file``."""
        return read_client_file(self.entries, self.name, self.role)


def account_for_clients(
    request: MirrorRequest, consumers: Sequence[OldClientFile], producer: OldClientFile
) -> tuple[MirrorRequest, SettingsAccount]:
    """Return what becomes of all settings, and the request with those that a settings file can have.

    Args:
        request: made of these files.
        consumers: in the order of the sources of the request; one may be for all.
    """
    files = consumers if len(consumers) == len(request.sources) else [*consumers] * len(request.sources)
    found: list[ProposedSetting | AccountedSetting] = []
    for source, file in zip(request.sources, files, strict=True):
        found += _settings(file, source.alias, f"{source.alias}{ARROW}{TARGET}")
    found += _settings(producer, TARGET, "")
    aliases = [*(source.alias for source in request.sources), TARGET]
    account = account_for(found, aliases, extra={})
    sources = tuple(replace(source, client=_kept(source.client, source.alias, account)) for source in request.sources)
    target = _kept(request.target_client, TARGET, account)
    return replace(request, sources=sources, target_client=target), account


def _settings(file: OldClientFile, alias: str, flow: str) -> Iterator[ProposedSetting | AccountedSetting]:
    """Yield the settings of one file, each under its key in a settings file."""
    for name, entry in file.entries.items():
        alone = read_client_file({name: entry}, file.name, file.role)
        if alone.left_out:
            yield nothing(file.name, name, _NO_COUNTERPART)
        elif alone.bootstrap:
            yield AccountedSetting(file.name, name, SettingOutcome.RENAMED, to=f"{alias}.bootstrap.servers")
        elif alone.group:
            to = f"{flow}.starting.offsets.group"
            yield AccountedSetting(file.name, name, SettingOutcome.RENAMED, to=to)
        else:
            for key, value in alone.settings.items():
                yield ProposedSetting(file.name, name, f"{alias}.{key}", value)


def _kept(client: ClientFile, alias: str, account: SettingsAccount) -> ClientFile:
    settings = {key: value for key, value in client.settings.items() if f"{alias}.{key}" in account.entries}
    return replace(client, settings=MappingProxyType(settings))
