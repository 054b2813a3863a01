"""A fetch session (KIP-227): a broker remembers which partitions a connection reads, so only changes are sent. Pure.

Answers to FetchSessionHandler of Apache Kafka's clients. The callers of a connection name all partitions that they want
now, each time; what of that the broker must be told is decided here. The reply then leaves out partitions without news.
A thousand idle partitions cost a request and a reply of a few bytes.

A broker that grants no session (it has a limit) answers id 0: the next request then is a full one again and asks anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.kafka.port import FetchRequest, PartitionFetch, TopicFetch

SESSION_ID_NOT_FOUND: Final = 70
INVALID_SESSION_EPOCH: Final = 71
SESSION_TOPIC_ID_ERROR: Final = 106
SESSION_LOST: Final = frozenset({SESSION_ID_NOT_FOUND, INVALID_SESSION_EPOCH, SESSION_TOPIC_ID_ERROR})
"""Errors of a whole reply after which the same request is sent in full, without anybody noticing."""

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
OUTSIDE_EPOCH: Final = -1
"""Says to the broker that no session is wanted."""
EPOCH_MAX: Final = 2**31 - 1

_Topic = tuple[str, uuid.UUID | None]


@dataclass(frozen=True, slots=True)
class SessionFetch:
    """What of a request is sent: the session it belongs to, and what has changed in it."""

    session_id: int
    epoch: int
    topics: Sequence[TopicFetch]
    forgotten: Sequence[tuple[str, uuid.UUID | None, Sequence[int]]] = ()
    """(topic, its id, partitions) that are not wanted any more."""


def outside(request: FetchRequest) -> SessionFetch:
    """Return a request that belongs to no session: all of it is sent, all of it is answered."""
    return SessionFetch(NO_SESSION, OUTSIDE_EPOCH, request.topics)


class FetchSession:
    """One connection's session. Between ``next`` and ``answered`` or ``forget`` stands at most one request."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._by_id = True
        self._held: dict[tuple[_Topic, int], PartitionFetch] = {}
        """What the broker believes to be wanted."""
        self.is_busy = False
        """A request is under way; another one has to go outside the session."""

    def next(self, request: FetchRequest, *, by_id: bool) -> SessionFetch:
        """Return what to send so that the broker reads just what ``request`` wants.

        Args:
            by_id: the request's version names topics by id. A session does not survive a change of that.
        """
        if by_id != self._by_id:
            self.forget()
        self._by_id = by_id
        self.is_busy = True
        wanted = {
            ((topic.name, topic.topic_id), partition.partition): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        if self._session_id == NO_SESSION:
            self._held = wanted
            return SessionFetch(NO_SESSION, FIRST_EPOCH, request.topics)
        held, self._held = self._held, wanted
        changed = [key for key, partition in wanted.items() if held.get(key) != partition]
        gone = [key for key in held if key not in wanted] if len(held) + len(changed) > len(wanted) else []
        return SessionFetch(self._session_id, self._epoch, _fetches(changed, wanted), _forgotten(gone))

    def answered(self, session_id: int, error_code: int) -> bool:
        """Take in a reply. Returns False if the session is lost and the request has to be sent again, in full."""
        self.is_busy = False
        if error_code in SESSION_LOST and self._session_id != NO_SESSION:
            self.forget()
            return False
        if error_code or session_id == NO_SESSION:
            self.forget()
        else:
            self._session_id = session_id
            self._epoch = 1 if self._epoch >= EPOCH_MAX else self._epoch + 1
        return True

    def forget(self) -> None:
        """Begin anew with the next request: it is not known what the broker believes."""
        self._session_id, self._epoch = NO_SESSION, FIRST_EPOCH
        self._held = {}
        self.is_busy = False


def _by_topic(keys: Iterable[tuple[_Topic, int]]) -> dict[_Topic, list[int]]:
    found: dict[_Topic, list[int]] = {}
    for topic, partition in keys:
        found.setdefault(topic, []).append(partition)
    return found


def _fetches(
    keys: Iterable[tuple[_Topic, int]], wanted: Mapping[tuple[_Topic, int], PartitionFetch]
) -> list[TopicFetch]:
    return [
        TopicFetch(*topic, [wanted[topic, number] for number in numbers]) for topic, numbers in _by_topic(keys).items()
    ]


def _forgotten(keys: Iterable[tuple[_Topic, int]]) -> list[tuple[str, uuid.UUID | None, Sequence[int]]]:
    return [(*topic, numbers) for topic, numbers in _by_topic(keys).items()]
