"""What is kept of changes over REST: a bound, an order, and nothing that a reader could stumble over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.records.audit_record import (
    KEPT_MOST,
    AuditRecord,
    MalformedAudit,
    audit_key,
    decode_audit,
    encode_audit,
    too_old,
)
from mm2py.records.connector_config import ConfigRecords

RECORD = AuditRecord(7, "alice", "password", "192.0.2.1", "PUT", "/x", "A->B", 200, "3", "{}", "host:1")


def test_a_record_is_read_as_it_was_written_and_later_fields_are_passed_over() -> None:
    assert decode_audit(encode_audit(RECORD)) == RECORD
    assert decode_audit(encode_audit(RECORD)[:-1] + b',"later":1}') == RECORD


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b"\xff", encode_audit(RECORD).replace(b'"at_ms":7', b'"at_ms":"7"')]
)
def test_what_is_no_record_is_told(value: bytes) -> None:
    with pytest.raises(MalformedAudit):
        decode_audit(value)


def test_the_oldest_go_so_that_a_thousand_stay() -> None:
    records, deleted = ConfigRecords("mm2-configs.A.internal"), []
    for at_ms in range(KEPT_MOST + 50):
        for old in too_old(records.audit):
            records.take(old, None, 0)
            deleted.append(old)
        records.take(audit_key(at_ms, at_ms), encode_audit(replace(RECORD, at_ms=at_ms)), 0)
    assert len(records.audit) == KEPT_MOST
    assert deleted == [audit_key(at_ms, at_ms) for at_ms in range(50)]
    assert records.malformed == [] and not records.skipped
