"""Which group runs a flow: our record under ``mm2py-owner`` in the flow's configs topic. Pure.

MirrorMaker 2 has one cluster of workers for a target, whose group coordinator keeps others out. Here each group has a
control log of its own and knows nothing of other groups, so the owner is written where all of them read. Connect skips
the key, and so does an mm2py that does not know it.

Of two claims at the same time one counts, the same for all readers (``replaced_record.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mm2py.records.operator_request import MalformedRequest, dump, is_count, load
from mm2py.records.replaced_record import ReplacedRecords, VersionTooNew, over_in, text_in

OWNER_KEY: Final = b"mm2py-owner"
FORMAT_VERSION: Final = 1
"""A reader that is older than ``readable_from`` in a record must not run the flow."""


class OwnerTooNew(VersionTooNew):
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
        raise OwnerTooNew(topic, text_in(fields, "mm2py", default="of a later version"))
    if not is_count(at_ms):
        raise MalformedRequest("it has no at_ms")
    group, write_id = text_in(fields, "group"), text_in(fields, "write_id")
    if not group or not write_id:
        raise MalformedRequest("it has no group or no write_id")
    return Owner(
        group,
        text_in(fields, "worker"),
        at_ms,
        write_id,
        text_in(fields, "based_on"),
        text_in(fields, "mm2py"),
        over_in(fields),
        text_in(fields, "takes_over"),
        text_in(fields, "source_cluster"),
    )


class OwnerRecords(ReplacedRecords[Owner]):
    """The owner of a flow after the claims read so far, in the order of the log."""

    def __init__(self, topic: str) -> None:
        super().__init__(lambda value: decode_owner(value, topic))
