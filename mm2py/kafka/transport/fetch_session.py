"""A fetch session (KIP-227): a broker remembers which partitions a connection reads, so only changes are sent. Pure.

The callers of a connection name all partitions that they want, each time; this module decides which of them must be
sent to the broker. The reply then leaves out partitions without news. A thousand idle partitions cost a request and a
reply of a few bytes.

A broker keeps a limited number of sessions. While it grants none, all partitions are sent and answered each time.

Counterpart: FetchSessionHandler of Apache Kafka's clients.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.kafka.error_codes import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)
from mm2py.kafka.port import FetchReply, FetchRequest, PartitionFetch, TopicFetch

SESSION_LOST: Final = frozenset({FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR})
"""Errors of a whole reply after which the same request is sent in full, without the caller noticing."""

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
"""Opens a session. The broker closes the session whose id is sent with it."""
OUTSIDE_EPOCH: Final = -1
"""Asks for no session. The broker closes the session whose id is sent with it."""
EPOCH_MAX: Final = 2**31 - 1
REFUSED_PAUSE_S: Final = 60.0
"""How long a broker that granted no session is not asked for one again."""


@dataclass(frozen=True, slots=True)
class SessionFetch:
    """The part of a request that is sent: its session, and what has changed in the session."""

    session_id: int
    epoch: int
    topics: Sequence[TopicFetch]
    forgotten: Sequence[tuple[str, uuid.UUID | None, Sequence[int]]] = ()
    """(topic, its id, partitions) that are not wanted any more."""


@dataclass(slots=True)
class _HeldTopic:
    """The partitions of a topic that the broker remembers as wanted."""

    topic_id: uuid.UUID | None
    asked: Sequence[PartitionFetch]
    """The caller's last list. Its next one is nearly always equal, and one comparison of lists finds that."""
    partitions: dict[int, PartitionFetch]


def outside(request: FetchRequest, *, closing: int = NO_SESSION) -> SessionFetch:
    """Return a request that belongs to no session: all of it is sent, all of it is answered.

    Args:
        closing: a session that the broker need not keep any longer.
    """
    return SessionFetch(closing, OUTSIDE_EPOCH, request.topics)


class FetchSession:
    """One connection's session. After ``next``, call ``answered`` or ``forget`` before the next ``next``."""

    def __init__(self) -> None:
        self.is_busy = False
        """A request is in flight. Another one has to go outside the session."""
        self.is_refused = False
        """When last asked for a session, the broker granted none, or did not keep it until the next read."""
        self._session_id = NO_SESSION
        self._left_behind = NO_SESSION
        """A session that is no longer used and that the broker may still keep; the next full request closes it."""
        self._epoch = FIRST_EPOCH
        self._by_id = True
        self._held: dict[str, _HeldTopic] = {}
        self._refused_until_s = -math.inf

    def next(self, request: FetchRequest, *, by_id: bool, now_s: float) -> SessionFetch:
        """Return what to send so that the broker reads exactly what ``request`` wants.

        Args:
            request: names no partition twice.
            by_id: the request's version names topics by id. If this changes, a new session is needed.
            now_s: on a clock that never steps back.
        """
        if by_id != self._by_id:
            self.forget()
        self._by_id = by_id
        names = {topic.name for topic in request.topics}
        if len(names) < len(request.topics) or not any(topic.partitions for topic in request.topics):
            self.forget()  # a topic under two ids, while it is being recreated; or nothing to remember
            return self._outside(request)
        if self._session_id == NO_SESSION:
            return self._outside(request) if now_s < self._refused_until_s else self._in_full(request)
        self.is_busy = True
        fetches: list[TopicFetch] = []
        forgotten: list[tuple[str, uuid.UUID | None, Sequence[int]]] = []
        for topic in request.topics:
            held = self._held.get(topic.name)
            if held is None:
                self._held[topic.name] = _held(topic)
                fetches.append(topic)
            elif held.topic_id is not topic.topic_id and held.topic_id != topic.topic_id:
                self.forget()  # recreated: by name, the broker could not distinguish it from the old topic
                return self._in_full(request)
            elif held.asked != topic.partitions:
                changed, gone = _take_over(held, topic.partitions)
                if changed:
                    fetches.append(TopicFetch(topic.name, topic.topic_id, changed))
                if gone:
                    forgotten.append((topic.name, topic.topic_id, gone))
        if len(self._held) > len(names):
            for name in [name for name in self._held if name not in names]:
                held = self._held.pop(name)
                forgotten.append((name, held.topic_id, list(held.partitions)))
        return SessionFetch(self._session_id, self._epoch, fetches, forgotten)

    def answered(self, sent: SessionFetch, reply: FetchReply, *, waits: bool, now_s: float) -> bool:
        """Update the session from the reply to ``sent``.

        Args:
            waits: the broker was to wait for news before it answered.
        Returns:
            Whether the reply is for the caller. If not, send the same request again; it will go in full.
        """
        self.is_busy = False
        if reply.error_code in SESSION_LOST and sent.epoch > FIRST_EPOCH:
            if sent.epoch == 1:  # lost at its first use: do not pay for two requests each time
                self._refused_until_s = now_s + REFUSED_PAUSE_S
                self.is_refused = reply.error_code == FETCH_SESSION_ID_NOT_FOUND
            self.forget()
            return False
        if sent.epoch == OUTSIDE_EPOCH:
            return True
        if reply.error_code:
            self.forget()
            return True
        if sent.epoch == FIRST_EPOCH:
            self._opened(reply, now_s)
            return True
        if reply.session_id != sent.session_id:
            self.forget()
            return True
        self._epoch = 1 if sent.epoch == EPOCH_MAX else sent.epoch + 1
        if not waits and not reply.partitions and not reply.throttle_ms:
            # A caller that does not wait wants to know where the log ends. The story: a flow restarted on connections
            # that it had before. For the broker nothing had changed, so each of its replies was empty.
            self.forget()
            return False
        return True

    def forget(self) -> None:
        """Open a new session with the next request: what the broker remembers of this one is unknown."""
        self._left_behind = self._session_id or self._left_behind
        self._session_id = NO_SESSION
        self._held = {}
        self.is_busy = False

    def _outside(self, request: FetchRequest) -> SessionFetch:
        self.is_busy = True
        closing, self._left_behind = self._left_behind, NO_SESSION
        return outside(request, closing=closing)

    def _in_full(self, request: FetchRequest) -> SessionFetch:
        self.is_busy = True
        closing, self._left_behind = self._left_behind, NO_SESSION
        self._held = {topic.name: _held(topic) for topic in request.topics}
        return SessionFetch(closing, FIRST_EPOCH, request.topics)

    def _opened(self, reply: FetchReply, now_s: float) -> None:
        """Update the session from the reply to a full request: the broker remembers the partitions that it answered, if
        it grants a session."""
        self._session_id, self._epoch = reply.session_id, 1
        if reply.session_id == NO_SESSION:
            self.forget()
            if reply.partitions:  # else it was throttled, and that is no refusal
                self._refused_until_s = now_s + REFUSED_PAUSE_S
                self.is_refused = True
            return
        self.is_refused = False
        kept = {(part.topic, part.partition) for part in reply.partitions}
        if any((name, number) not in kept for name, held in self._held.items() for number in held.partitions):
            self.forget()


def _held(topic: TopicFetch) -> _HeldTopic:
    return _HeldTopic(topic.topic_id, list(topic.partitions), {want.partition: want for want in topic.partitions})


def _take_over(held: _HeldTopic, asked: Sequence[PartitionFetch]) -> tuple[list[PartitionFetch], list[int]]:
    """Remember which partitions of a topic are wanted now; return which of them are new or changed, and which are no
    longer wanted."""
    before = held.partitions
    wanted = {want.partition: want for want in asked}
    changed = [want for number, want in wanted.items() if before.get(number) != want]
    gone = [number for number in before if number not in wanted] if before.keys() != wanted.keys() else []
    held.asked, held.partitions = list(asked), wanted
    return changed, gone
