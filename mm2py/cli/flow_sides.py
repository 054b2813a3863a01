"""The two clusters of a flow, for a command that asks them once, and tells its user what is wrong with settings."""

from __future__ import annotations

from mm2py.cli.command import teller
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.flow_sides import settings_of_workers as settings_of_workers_told
from mm2py.records.connector_config import FlowConfig
from mm2py.status.cluster_inquiry import InquirySide


async def settings_of_workers(
    file: SettingsFile, settings: FlowSettings, target: InquirySide
) -> tuple[FlowSettings, FlowConfig | None]:
    """Return the settings by which the workers run a flow. The user is told if the stored ones cannot be used.

    Raises:
        ClusterFailed: the target does not answer.
    """
    return await settings_of_workers_told(file, settings, target, teller(file))
