"""Topics that a backfill selects for its flow: the settings to store, and other differences of the file. Pure.

The workers run the stored settings, not those of a file. A topic that an operator has only put into the file is not
yet copied by the workers. If the backfill stored the topic first, workers would begin to copy it. So the backfill
stores its hold first, and then these settings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mm2py.config.configuration import SettingsFile
from mm2py.config.keys import TOPICS
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.shared_settings.flow_config import Difference, changed, difference
from mm2py.shared_settings.follow import merged_or_file


@dataclass(frozen=True, slots=True)
class SettingsSelection:
    """Settings that select more topics than the stored ones, and are otherwise the same."""

    stored: FlowConfig
    wanted: FlowConfig
    settings: FlowSettings
    """The settings by which the workers will run the flow."""
    added: Difference
    left: Difference
    """Other differences of the file; they are not stored."""


def selection_of(
    stored: FlowConfig | None,
    file: SettingsFile,
    by_file: FlowSettings,
    topics: Collection[str],
    *,
    settings: FlowSettings,
) -> SettingsSelection | None:
    """Return settings that also select the topics that only the file selects; None: there are no such topics.

    Args:
        stored: the flow's valid settings in the configs topic; None: there are none.
        by_file: the flow's settings by the file.
        topics: as the source names them.
        settings: the flow's settings that the workers use now.
    Raises:
        ConfigError: a stored setting leaves one of the topics out in another way.
        PatternTooSlow, StoredConfigUnusable.
    """
    missing = [topic for topic in topics if by_file.replicates(topic) and not settings.replicates(topic)]
    base = stored.previous if stored is not None and stored.by is DecidedBy.MM2 else stored
    if not missing or stored is None or base is None:
        return None
    before = base.properties.get(TOPICS.name, "")
    patterns = [topic.replace(".", "\\.") for topic in missing]
    properties = {**base.properties, TOPICS.name: ",".join([before, *patterns] if before.strip() else patterns)}
    wanted = changed(stored, properties, DecidedBy.APPLY)
    found = merged_or_file(file, by_file, wanted)
    for topic in missing:
        if not found.replicates(topic):
            raise ConfigError(
                f"The stored settings of {by_file.flow} leave {topic!r} out, also if it is added to topics.",
                remedy="mm2py apply a file first that has the other settings (topics.exclude), and not yet the topic.",
            )
    added = difference(base.properties, properties)
    return SettingsSelection(stored, wanted, found, added, difference(properties, file.shared(by_file.flow)))
