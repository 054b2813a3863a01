"""Which group runs a flow: our record under ``mm2py-owner`` in the flow's configs topic. Pure.

MirrorMaker 2 has one cluster of workers for a target, whose group coordinator keeps others out. Here each group has a
control log of its own and knows nothing of other groups, so the owner is written where all of them read. Connect skips
the key, and so does an mm2py that does not know it.

Kafka has no compare-and-set. So a claim names the claim that its writer had read (``based_on``). It counts only if the
named claim is the one that counts at this place in the log. All readers of the whole log agree on that. But the topic
is compacted, and a reader may begin with a claim that lost. So the claim that counts is written again after the lost
ones, and names them (``over``): from there on all readers agree again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from mm2py.errors import Mm2Error
from mm2py.records.author import plain
from mm2py.records.operator_request import MalformedRequest, dump, is_count, load

OWNER_KEY: Final = b"mm2py-owner"
FORMAT_VERSION: Final = 1
"""A reader that is older than ``readable_from`` in a record must not run the flow."""
LOST_MOST: Final = 100
TEXT_MOST: Final = 300


class OwnerTooNew(Mm2Error):
    """A newer mm2py has claimed the flow in a way that this one does not know."""

    def __init__(self, topic: str, written_by: str) -> None:
        super().__init__(
            f"{topic} names the flow's group in a way that this mm2py cannot read: mm2py {written_by} wrote it.",
            remedy=f"Run mm2py {written_by} or later.",
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """A claim: a group runs the flow from now on."""

    group: str
    """By ``mm2py.group``."""
    worker: str
    """The worker of the group that claimed the flow, for people."""
    at_ms: int
    write_id: str
    """Unique for each claim. A claim that is written again keeps it."""
    based_on: str = ""
    """The write_id that its writer had read; empty if the flow had no owner."""
    written_by: str = ""
    """The version of mm2py."""
    over: tuple[str, ...] = ()
    """The write_ids of lost claims before it. If a reader takes one of these for the claim that counts, this claim
    replaces it."""
    takes_over: str = ""
    """The previous group of the flow, as long as a member that joined that group meanwhile may run the flow."""
    source_cluster: str = ""
    """The id of the cluster that the flow copies from: aliases differ from file to file. Empty: not known yet, or an
    earlier version has written the claim."""

    def follows(self, current: Owner | None) -> bool:
        """Whether it replaces ``current``, the claim that counts so far."""
        return current is None or current.write_id in {self.based_on, self.write_id, *self.over}


def encode_owner(owner: Owner) -> bytes:
    """Return the value of a claim; its key is OWNER_KEY."""
    fields = {
        "format": FORMAT_VERSION,
        "readable_from": FORMAT_VERSION,
        "group": owner.group,
        "worker": owner.worker,
        "at_ms": owner.at_ms,
        "write_id": owner.write_id,
        "based_on": owner.based_on,
        "mm2py": owner.written_by,
        "over": list(owner.over),
        "takes_over": owner.takes_over,
        "source_cluster": owner.source_cluster,
    }
    return dump(fields)


def decode_owner(value: bytes, topic: str) -> Owner:
    """Return a claim.

    Raises:
        MalformedRequest: it is not as mm2py writes it.
        OwnerTooNew: a newer mm2py wrote it, and this one must not ignore it.
    """
    fields = load(value)
    readable_from, at_ms = fields.get("readable_from"), fields.get("at_ms")
    if not isinstance(readable_from, int) or isinstance(readable_from, bool):
        raise MalformedRequest("it has no format")
    if readable_from > FORMAT_VERSION:
        raise OwnerTooNew(topic, _text(fields, "mm2py", default="of a later version"))
    if not is_count(at_ms):
        raise MalformedRequest("it has no at_ms")
    group, write_id = _text(fields, "group"), _text(fields, "write_id")
    if not group or not write_id:
        raise MalformedRequest("it has no group or no write_id")
    over = fields.get("over", [])
    if not isinstance(over, list) or not all(isinstance(one, str) for one in over):
        raise MalformedRequest("over is no list of texts")
    return Owner(
        group,
        _text(fields, "worker"),
        at_ms,
        write_id,
        _text(fields, "based_on"),
        _text(fields, "mm2py"),
        tuple(over[-LOST_MOST:]),
        _text(fields, "takes_over"),
        _text(fields, "source_cluster"),
    )


def _text(fields: Mapping[str, Any], name: str, default: str = "") -> str:
    """Return a text without characters that could control a terminal."""
    text = fields.get(name, default)
    if not isinstance(text, str):
        raise MalformedRequest(f"{name} is no text")
    return plain(text, TEXT_MOST)


class OwnerRecords:
    """The owner of a flow after the claims read so far, in the order of the log."""

    def __init__(self, topic: str) -> None:
        self.current: Owner | None = None
        """The claim that counts."""
        self.too_new: OwnerTooNew | None = None
        """Set while the last record is one of a newer mm2py that must not be ignored."""
        self._topic = topic
        self._lost: deque[str] = deque(maxlen=LOST_MOST)
        """The write_ids of lost claims that no later one names."""
        self.reads = 0
        """How many claims were read."""
        self._read: deque[str] = deque(maxlen=LOST_MOST)

    def take(self, value: bytes | None) -> None:
        """Add the next record. Raises: MalformedRequest; then the record changes nothing."""
        self.too_new = None
        if value is None:  # an operator has deleted it: the flow has no owner
            self.current = None
            self._lost.clear()
            return
        try:
            found = decode_owner(value, self._topic)
        except OwnerTooNew as error:
            self.too_new = error
            return
        self._read.append(found.write_id)
        self.reads += 1
        if found.follows(self.current):
            self.current = found
            self._lost = deque((one for one in self._lost if one not in found.over), maxlen=LOST_MOST)
        else:
            self._lost.append(found.write_id)

    def has(self, write_id: str, since: int = 0) -> bool:
        """Whether a claim was read after the first ``since`` claims, even if it does not count."""
        newer = self.reads - since
        return newer > 0 and write_id in list(self._read)[-newer:]

    @property
    def is_covered(self) -> bool:
        """Whether the log has a lost claim that a reader of the compacted log may take for the one that counts."""
        return self.current is not None and bool(self._lost)

    def put_back(self) -> Owner:
        """Return the claim that counts in the form to write again if ``is_covered``."""
        assert self.current is not None  # noqa: S101
        return replace(self.current, over=tuple(self._lost))

    def next(self, owner: Owner) -> Owner:
        """Return a claim in the form to write so that it replaces the one that counts."""
        based_on = "" if self.current is None else self.current.write_id
        return replace(owner, based_on=based_on, over=tuple(self._lost))
