"""Audit events: what is stored behind the answer, and what is told where it cannot be."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable

import pytest

from mm2py.errors import Mm2Error
from mm2py.logs import make_logger
from mm2py.records.audit_record import AuditRecord
from mm2py_rest.access.audit import BODY_MAX_CHARS, WAITING_MOST, Audit, shown_body
from mm2py_rest.access.callers import Caller, Role, User
from tests.fakes.rest_services import FixedClock

pytestmark = pytest.mark.real_time

ALICE = Caller(User("alice", Role.ADMIN), "192.0.2.1", "password")


def tell(audit: Audit, path: str = "/x") -> None:
    audit.tell(ALICE, "PUT", path, flow="A->B", status=200, version="3", body="{}")


def with_store(store: Callable[[AuditRecord], Awaitable[None]] | None) -> tuple[Audit, io.StringIO]:
    text = io.StringIO()
    return Audit(store, make_logger("info", "json", text), FixedClock(), worker="host:1"), text


async def test_a_change_is_logged_at_once_and_stored_behind_the_answer() -> None:
    stored: list[AuditRecord] = []

    async def store(record: AuditRecord) -> None:
        stored.append(record)

    audit, text = with_store(store)
    tell(audit)
    assert "rest.audit" in text.getvalue() and stored == []
    await audit.close(1.0)
    assert [(one.user, one.worker, one.version) for one in stored] == [("alice", "host:1", "3")]


async def test_what_the_target_does_not_take_is_told_and_the_next_is_tried() -> None:
    tried: list[str] = []

    async def store(record: AuditRecord) -> None:
        tried.append(record.path)
        raise Mm2Error("No right.", remedy="Grant it.")

    audit, text = with_store(store)
    tell(audit, "/1")
    tell(audit, "/2")
    await audit.close(1.0)
    assert tried == ["/1", "/2"]
    assert text.getvalue().count("rest.audit_not_stored") == 2 and "No right." in text.getvalue()


async def test_a_target_that_hangs_takes_no_memory_and_does_not_keep_the_process() -> None:
    async def store(_: AuditRecord) -> None:
        await asyncio.Event().wait()

    audit, text = with_store(store)
    for _ in range(WAITING_MOST + 3):
        tell(audit)
    assert text.getvalue().count("rest.audit_not_stored") == 3
    await audit.close(0.01)
    assert text.getvalue().count('"event": "rest.audit"') == WAITING_MOST + 3


def test_what_was_sent_is_kept_in_short_and_without_credentials_at_any_depth() -> None:
    """S32."""
    body = {"config": {"x.password": "canary", "topics": "a, sasl.jaas.config=canary", "tasks.max": "3"}, "n": [1, "a"]}
    shown = shown_body(body, with_values=True)
    assert "canary" not in shown and '"tasks.max": "3"' in shown and '"n": [1, "a"]' in shown
    assert "3" not in shown_body(body, with_values=False)
    assert len(shown_body({"topics": ["x" * 300] * 100}, with_values=True)) == BODY_MAX_CHARS
    assert shown_body(None, with_values=True) == ""
    assert "canary" not in shown_body({"a": {"b": {"c": {"d": {"e": {"f": "canary"}}}}}}, with_values=True)


def test_addresses_are_no_part_of_an_audit_event() -> None:
    sent = {"source.cluster.bootstrap.servers": "db.internal.example:9092", "topics": "orders"}
    shown = shown_body(sent, with_values=True)
    assert "db.internal.example" not in shown and "orders" in shown
