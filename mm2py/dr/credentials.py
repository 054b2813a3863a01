"""As whom a recovery connects to the two clusters of its flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mm2py.checks.principal import principal_of
from mm2py.checks.rights import PLACEHOLDER
from mm2py.config.configuration import SettingsFile
from mm2py.config.recovery import recovery_security
from mm2py.config.settings import ClusterSettings, FlowSettings
from mm2py.flow import ClusterAlias


@dataclass(frozen=True, slots=True)
class RecoveryUser:
    """As whom a recovery connects to one cluster."""

    cluster: ClusterAlias
    principal: str
    """As an ACL names it; empty: the file does not tell it."""
    is_own: bool
    """By credentials of recoveries; else by those of the flow."""

    @property
    def text(self) -> str:
        who = self.principal or "a user that the file does not tell"
        whose = f"{self.cluster}.dr.*" if self.is_own else "the flow's credentials"
        return f"connects to {self.cluster} as {who} ({whose})"


def as_recovery(file: SettingsFile, settings: FlowSettings) -> FlowSettings:
    """Return the settings of a flow with the credentials of recoveries, at each cluster that has some.

    Raises: CredentialsUnusable.
    """
    return replace(
        settings,
        source=_side(file, settings, settings.source),
        target=_side(file, settings, settings.target),
    )


def recovery_users(file: SettingsFile, settings: FlowSettings) -> tuple[RecoveryUser, ...]:
    """Return as whom a recovery of a flow connects, source first. Blocks while key stores are read.

    Raises: CredentialsUnusable.
    """
    found = []
    for side in (settings.source, settings.target):
        own = recovery_security(file.properties.entries, settings.flow, side.alias)
        principal = principal_of(side.security if own is None else own)[0]
        found.append(RecoveryUser(side.alias, "" if principal == PLACEHOLDER else principal, own is not None))
    return tuple(found)


def users_plain(users: tuple[RecoveryUser, ...]) -> Mapping[str, object]:
    """Return the same as JSON types, by cluster."""
    return {one.cluster: {"principal": one.principal or None, "is_own": one.is_own} for one in users}


def _side(file: SettingsFile, settings: FlowSettings, side: ClusterSettings) -> ClusterSettings:
    own = recovery_security(file.properties.entries, settings.flow, side.alias)
    return side if own is None else replace(side, security=own)
