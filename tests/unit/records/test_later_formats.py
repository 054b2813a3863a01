"""Each kind of record that mm2py keeps names its format; what this version does with one that only a later can read.

The names are those of the table in docs/upgrade.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from mm2py.dr.fence.record import FenceTooNew, decode_fence
from mm2py.dr.journal import JournalUnreadable, decode_journal
from mm2py.flow import TopicName
from mm2py.group.state_snapshot import read_snapshot
from mm2py.records import control_codec, gap_record, ledger_record, quarantined
from mm2py.records.audit_record import MalformedAudit, decode_audit
from mm2py.records.backfill_record import BackfillTooNew, decode_backfill
from mm2py.records.batch import NewRecord
from mm2py.records.connector_config import ConfigTooNew, decode_flow
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import Skipped
from mm2py.records.direction_record import DirectionTooNew, decode_direction
from mm2py.records.flight_record import MalformedFlightRecord, decode_flight
from mm2py.records.flow_history_record import MalformedHistory, decode_history_record
from mm2py.records.gap_record import MalformedGapRecord
from mm2py.records.history_record import decode_history
from mm2py.records.operator_request import RESTART_PARTITIONS, MalformedRequest, decode_restart
from mm2py.records.owner_record import OwnerTooNew, decode_owner
from mm2py.records.pause_record import PAUSE_KEY, decode_pause
from mm2py.records.quarantined import NotQuarantined
from mm2py.records.source_offset import NewerPositionFormat, decode_value

LATER: Final = {"format": 99, "readable_from": 99, "mm2py": "9.0"}
LEDGER_KEY: Final = ledger_record.encode_key(ledger_record.ChunkKey(TopicName("orders"), 0, 1, 7))
PAGE: Final = Path(__file__).parents[3] / "docs" / "upgrade.md"


def of(**fields: Any) -> bytes:
    return json.dumps({**LATER, **fields}).encode()


def control(*, skippable: bool) -> bytes:
    return of(kind="Merged", member="w1", version="9.0", skippable=skippable)


def quarantine_of_later() -> NewRecord:
    return NewRecord(b"k", b"v", 1, [(quarantined.PROVENANCE_HEADER, of(mm2py=99))])


REFUSED: Final[dict[str, tuple[type[Exception], Callable[[], object]]]] = {
    "control record": (NewerFormat, lambda: control_codec.decode(control(skippable=False), where="log at 1")),
    "state of the group": (NewerFormat, lambda: read_snapshot(of(version="9.0").decode())),
    "settings of a flow": (ConfigTooNew, lambda: decode_flow(of(), "configs")),
    "group that runs a flow": (OwnerTooNew, lambda: decode_owner(of(), "configs")),
    "flow on or standby": (DirectionTooNew, lambda: decode_direction(of(), "configs")),
    "backfill": (BackfillTooNew, lambda: decode_backfill(b"mm2py-backfill-0123abcd", of())),
    "position": (NewerPositionFormat, lambda: decode_value(of(mm2py=99, next_source=7, offset=6))),
    "ledger": (
        ledger_record.NewerLedgerFormat,
        lambda: ledger_record.decode(
            ledger_record.encode_key(ledger_record.ChunkKey(TopicName("orders"), 0, 1, 7)), b"cc"
        ),
    ),
    "fence of producers": (FenceTooNew, lambda: decode_fence(of())),
    "recovery journal": (JournalUnreadable, lambda: decode_journal(of(), where="journal at 1")),
}
"""Who reads one of these stops, and names the version that is needed."""
PASSED_OVER: Final[dict[str, tuple[type[Exception], Callable[[], object]]]] = {
    "request to restart partitions": (MalformedRequest, lambda: decode_restart(RESTART_PARTITIONS, of())),
    "history of settings": (MalformedRequest, lambda: decode_history(of(kind="merged", at_ms=1))),
    "audit": (MalformedAudit, lambda: decode_audit(of())),
    "gap, and what operators decided": (MalformedGapRecord, lambda: gap_record.decode(b"mm2py-gap-1", of(mm2py=99))),
    "record in quarantine": (NotQuarantined, lambda: quarantined.decode(quarantine_of_later())),
    "flight recorder": (MalformedFlightRecord, lambda: decode_flight(of(kind="anew", at_ms=1, member="w1"))),
    "history of a flow": (MalformedHistory, lambda: decode_history_record("A->B", b"A->B event 1", of(at_ms=1))),
}
"""Who reads one of these goes on without it."""


@pytest.mark.parametrize("kind", REFUSED)
def test_what_must_not_be_ignored_is_refused(kind: str) -> None:
    error, read = REFUSED[kind]
    with pytest.raises(error):
        read()


@pytest.mark.parametrize("kind", PASSED_OVER)
def test_what_may_be_ignored_is_passed_over(kind: str) -> None:
    error, read = PASSED_OVER[kind]
    with pytest.raises(error):
        read()


def test_a_control_record_that_says_so_may_be_skipped() -> None:
    found = control_codec.decode(control(skippable=True), where="log at 1")
    assert isinstance(found, Skipped)


def test_a_pause_of_a_later_version_is_a_pause() -> None:
    found = decode_pause(PAUSE_KEY + b"orders", of())
    assert (found.topic, "9.0" in found.by) == ("orders", True)


def test_a_position_that_this_version_may_read_keeps_what_it_does_not_know() -> None:
    found = decode_value(of(mm2py=99, readable_from=1, next_source=7, offset=6, merged=True))
    assert found is not None
    assert (found.next_source, found.unknown["merged"]) == (7, True)


def test_the_page_lists_each_kind_of_record() -> None:
    rows = re.findall(r"^\| ([^|]+?) \| `[^|]+` \| [^|]+ \| ([^|]+?) \|$", PAGE.read_text(), re.MULTILINE)
    listed = dict(rows)
    assert {kind for kind, answer in listed.items() if answer.startswith("refused")} == set(REFUSED)
    assert {kind for kind, answer in listed.items() if answer.startswith("passed over")} == set(PASSED_OVER)
    assert listed["pause"].startswith("still a pause")
