"""Which topics of a flow are not copied, or not wholly, as things stand: said once, and once more when it is over."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from connectors.source.errors import RemoteTopicTooNarrow, TopicRefused

LINES_MOST: Final = 50
"""So many refused topics of one round get a line of their own: a source must not be able to fill the log (S23)."""


class RefusedTopics:
    """What stands, by source topic."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._refused: dict[str, TopicRefused] = {}
        self._narrow: dict[str, RemoteTopicTooNarrow] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._refused or name in self._narrow

    def names(self) -> set[str]:
        return {*self._refused, *self._narrow}

    def width(self, name: str) -> int:
        """Return how many partitions of a topic can be copied, going by what was found last; 0 if it is refused."""
        narrow = self._narrow.get(name)
        return 0 if narrow is None or name in self._refused else narrow.remote_partitions

    def shown(self) -> dict[str, str]:
        """Return why each of them is not copied, or not wholly."""
        return {name: str(error) for name, error in {**self._narrow, **self._refused}.items()}

    def keep(self, there: Container[str]) -> None:
        """Forget topics that the source does not show any more: there is nothing left to refuse."""
        self._refused = {name: error for name, error in self._refused.items() if name in there}
        self._narrow = {name: error for name, error in self._narrow.items() if name in there}

    def note(self, looked_at: Iterable[str], refused: Mapping[str, TopicRefused]) -> None:
        """Take in what a round found of topics; those it did not look at stay as they were."""
        lines = 0
        for name in looked_at:
            error = refused.get(name)
            if error is None:
                if self._refused.pop(name, None) is not None:
                    self._log.info("topic.accepted", topic=name)
            elif str(self._refused.get(name)) != str(error):
                lines += 1
                if lines <= LINES_MOST:
                    self._log.error(error.event, topic=name, why=str(error))
                self._refused[name] = error
        if lines > LINES_MOST:
            self._log.error("topics.refused", topics=lines, why=f"{lines - LINES_MOST} more have no line of their own")

    def note_one(self, name: str, error: TopicRefused) -> None:
        self.note([name], {name: error})

    def note_narrow(self, looked_at: Iterable[str], too_narrow: Mapping[str, RemoteTopicTooNarrow]) -> None:
        """The same for remote topics with too few partitions: those they have are copied."""
        lines = 0
        for name in looked_at:
            error = too_narrow.get(name)
            if error is None:
                self._narrow.pop(name, None)
            elif str(self._narrow.get(name)) != str(error):
                lines += 1
                if lines <= LINES_MOST:
                    self._log.error("topic.too_narrow", topic=name, why=str(error))
                self._narrow[name] = error
