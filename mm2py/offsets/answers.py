"""What a ledger answers when it is asked for an offset: where to continue in the other log, and why there. Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class AnswerKind(Enum):
    """What an offset is. The last sentence of each kind says where to continue in the other log (``Answer.offset``)."""

    COPIED = "copied"
    """A record and its copy."""
    DROPPED = "dropped"
    """No copied record has this source offset: a marker, aborted, compacted away. The next copied record."""
    GAP = "gap"
    """Lost in a gap that ``mm2py gaps`` lists. The next copied record."""
    QUARANTINED = "quarantined"
    """The next copied record."""
    COUNTED = "counted"
    """In a hole of which only the number of records is known. Where the hole begins: not exact."""
    TRIMMED = "trimmed"
    """As COUNTED; the target deleted the copies before their offsets were noted."""
    END = "end"
    """After the last copied record. The offset after the last record on the other side."""
    NOT_YET = "not yet"
    """After all that the ledger knows. No answer, but ``PartitionLedger.reverse`` gives the source offset after it."""
    EXPIRED = "expired"
    """Before all that the ledger knows, and nothing before it is left or was copied. The first copied record."""
    BEFORE_LEDGER = "before the ledger"
    """Copied before the ledger was kept, or since a part of it was lost. No answer: ask the offset syncs."""
    REPLAYED = "replayed"
    """Only from target to source: ``mm2py replay`` appended it. The source offset of the record in quarantine."""
    NOT_OURS = "not this flow's"
    """Only from target to source: a marker or the record of a foreign writer. The next copied record."""


class Answer(NamedTuple):
    """Where to continue in the other log."""

    kind: AnswerKind
    offset: int | None
    """None: the ledger does not know it."""
    is_exact: bool
    """A reader that continues at ``offset`` skips no record and reads none again. If False, it may read some again."""


NOT_YET: Final = Answer(AnswerKind.NOT_YET, None, False)
BEFORE_LEDGER: Final = Answer(AnswerKind.BEFORE_LEDGER, None, False)
