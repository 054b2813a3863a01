"""Topics that a backfill selects for its flow: what is stored then, and what the file says besides. Pure.

The workers run what is stored, not what a file says. A topic that an operator has only put into the file is selected by
the workers yet. If it were stored first, workers would begin it. So the backfill stores its hold, and then this.
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
    """Settings that select more topics than those that are stored, and are else the same."""

    stored: FlowConfig
    wanted: FlowConfig
    settings: FlowSettings
    """Those by which the workers will run the flow."""
    added: Difference
    left: Difference
    """What else the file says; it is not stored."""


def selection_of(
    stored: FlowConfig | None,
    file: SettingsFile,
    by_file: FlowSettings,
    topics: Collection[str],
    *,
    settings: FlowSettings,
) -> SettingsSelection | None:
    """Return what selects the topics that the file selects and the stored settings do not; None: there are none.

    Args:
        stored: what counts in the configs topic.
        by_file: the flow's settings by the file.
        topics: as the source names them.
        settings: those by which the workers run the flow now.
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
