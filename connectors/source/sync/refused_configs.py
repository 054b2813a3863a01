"""Settings that the target refuses to give to a remote topic: left out one by one, said once, tried again now and then.

MM2 sends all settings of a topic at once, and the broker then takes none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock

AGAIN_S: Final = 3600.0
"""How long a refused setting is left alone while its value stays the same: the target may be upgraded meanwhile."""
LINES_MOST: Final = 20
LINES_WITHIN_S: Final = 60.0
"""So many refusals within so long get a line of their own; what is more is counted."""


@dataclass(slots=True)
class _Refusal:
    value: str | None
    at_s: float


class RefusedConfigs:
    """What one flow's target refused, by remote topic and setting."""

    def __init__(self, target_alias: str, *, clock: Clock, log: FilteringBoundLogger) -> None:
        self._target_alias = target_alias
        self._clock = clock
        self._log = log
        self._refused: dict[tuple[str, str], _Refusal] = {}
        self._lines = 0
        self._lines_since_s = float("-inf")

    def note(self, topic: str, name: str, value: str | None, why: str) -> None:
        """Remember a refusal; say it unless it was said of the same value before."""
        now_s = self._clock.monotonic()
        before = self._refused.get((topic, name))
        self._refused[topic, name] = _Refusal(value, now_s)
        if before is not None and before.value == value:
            return
        if now_s - self._lines_since_s >= LINES_WITHIN_S:
            self._lines_since_s, self._lines = now_s, 0
        self._lines += 1
        if self._lines <= LINES_MOST:
            self._log.warning(
                "topic_config.refused",
                topic=topic,
                setting=name,
                value="(default)" if value is None else value,
                why=why,
                effect=f"the topic is copied without it; it is tried again when it changes, or after {AGAIN_S:g} s",
                remedy=f"Set it on {self._target_alias} by hand, or add it to config.properties.exclude.",
            )
        elif self._lines == LINES_MOST + 1:
            self._log.warning("topic_config.refused_often", why="more settings are refused; they are left out as well")

    def holds(self, topic: str, name: str, value: str | None) -> bool:
        """Tell whether this very value was refused not long ago, so that sending it again is of no use."""
        refusal = self._refused.get((topic, name))
        return refusal is not None and refusal.value == value and self._clock.monotonic() - refusal.at_s < AGAIN_S

    def taken(self, topic: str, name: str) -> None:
        """The target has taken the setting."""
        if self._refused.pop((topic, name), None) is not None:
            self._log.info("topic_config.accepted", topic=topic, setting=name)

    def keep(self, is_there: Callable[[str], bool]) -> None:
        """Forget remote topics that are not copied any more, nor just made."""
        now_s = self._clock.monotonic()
        self._refused = {
            key: refusal for key, refusal in self._refused.items() if is_there(key[0]) or now_s - refusal.at_s < AGAIN_S
        }
