"""Which positions are carried over and back, and what stands against it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, parse_flow
from mm2py.records.pause_record import Pauses, TopicPause
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition, decode_value, encode_mm2_value
from mm2py.takeover.connect_rest import ConnectFailed, ConnectRest
from mm2py.takeover.handing_back import to_connect
from mm2py.takeover.positions_plan import (
    FoundPosition,
    PositionOutcome,
    judge_position,
    lines_of_positions,
    refusals_of,
)
from mm2py.takeover.return_plan import ReturnPlan, plan_return
from mm2py.takeover.switching import SwitchRefused

A_TO_B = parse_flow("A->B")
FOUND = FoundPosition(
    "orders",
    3,
    next_source=100,
    remote_topic="A.orders",
    is_selected=True,
    source=(0, 120),
    target_end=100,
    stored=None,
)
DRAINED = StoredPosition(next_source=100, producer_id=7, producer_epoch=0, drained=True)


def test_a_position_that_both_logs_have_is_taken_over() -> None:
    found = judge_position(FOUND)
    assert (found.outcome, found.why, found.waiting) == (PositionOutcome.TAKEN, "", 20)
    assert judge_position(replace(FOUND, stored=100)).outcome is PositionOutcome.STORED
    assert judge_position(replace(FOUND, stored=99)).outcome is PositionOutcome.TAKEN


@pytest.mark.parametrize(
    ("changed", "outcome", "why"),
    [
        (replace(FOUND, source=None), PositionOutcome.LEFT, "no such partition any more"),
        (replace(FOUND, is_selected=False), PositionOutcome.LEFT, "does not copy this topic"),
        (replace(FOUND, source=(0, 99)), PositionOutcome.REFUSED, "deleted and made again"),
        (replace(FOUND, target_end=0), PositionOutcome.REFUSED, "the mirror writes elsewhere"),
        (replace(FOUND, target_end=None), PositionOutcome.REFUSED, "the mirror writes elsewhere"),
        (replace(FOUND, stored=101), PositionOutcome.REFUSED, "records would come twice"),
        (replace(FOUND, source=(110, 120)), PositionOutcome.TAKEN, "what was there before is lost"),
    ],
)
def test_a_position_that_would_lose_or_repeat_records_is_named(
    changed: FoundPosition, outcome: PositionOutcome, why: str
) -> None:
    found = judge_position(changed)
    assert (found.outcome, why in found.why) == (outcome, True)


def test_what_is_refused_is_shown_first() -> None:
    judged = [judge_position(FOUND), judge_position(replace(FOUND, partition=5, target_end=0))]
    lines = lines_of_positions(A_TO_B, judged)
    assert [line.split()[1] for line in lines if line.startswith("  orders")] == ["5", "3"]
    assert lines[-1] == "  2 positions: 1 taken over, 1 refused."
    assert [one.found.partition for one in refusals_of(judged)] == [5]


def test_a_stored_position_is_the_one_that_mirrormaker_2_writes() -> None:
    assert encode_mm2_value(100) == b'{"offset":99}'
    stored = decode_value(encode_mm2_value(100))
    assert stored is not None
    assert (stored.next_source, stored.is_of_mm2) == (100, True)


def returned(*, held: str = "", paused: Pauses | None = None, **positions: StoredPosition) -> ReturnPlan:
    by_key = {(name, 0): at for name, at in positions.items()}
    return plan_return(A_TO_B, by_key, malformed=(), held=held, pauses=Pauses() if paused is None else paused)


def test_positions_of_a_worker_that_stopped_in_order_are_handed_back() -> None:
    plan = returned(orders=DRAINED, old=StoredPosition(next_source=7), new=replace(DRAINED, next_source=0))
    assert (plan.refusals, dict(plan.positions)) == ((), {("orders", 0): 100, ("old", 0): 7})
    assert plan.notes == ("1 partition(s) are at their start: MirrorMaker 2 begins there without a position.",)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (returned(orders=replace(DRAINED, drained=False)), "did not stop in order"),
        (returned(orders=replace(DRAINED, by=BY_OPERATOR)), "an operator has set"),
        (returned(orders=DRAINED, held="paused"), "A->B is paused"),
        (returned(), "has no positions"),
        (
            returned(
                orders=DRAINED,
                paused=Pauses.of([TopicPause("orders")]),
            ),
            "orders is paused",
        ),
        (plan_return(A_TO_B, {}, malformed=["key x"], held="", pauses=Pauses()), "key x is no position"),
    ],
)
def test_what_mirrormaker_2_would_copy_wrongly_is_not_handed_back(plan: ReturnPlan, why: str) -> None:
    assert len(plan.refusals) == 1
    assert why in plan.refusals[0]


class FakeConnect:
    """Answers as the REST of Kafka Connect does; what it was asked is kept."""

    def __init__(self, answers: Mapping[str, list[tuple[int, Any]]]) -> None:
        """``answers``: by method and path, one after the other; the last one is repeated."""
        self.answers = {key: list(some) for key, some in answers.items()}
        self.asked: list[tuple[str, Any]] = []

    def answer(self, key: str, body: Any) -> tuple[int, Any]:
        self.asked.append((key, body))
        some = self.answers.get(key, [(404, {"message": f"no {key}"})])
        return some.pop(0) if len(some) > 1 else some[0]

    @contextmanager
    def served(self) -> Iterator[ConnectRest]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                code, answer = fake.answer(f"{self.command} {self.path}", body)
                data = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_PATCH = _serve  # noqa: N815

            def log_message(self, format: str, *arguments: object) -> None:
                """Stay silent."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield ConnectRest(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


STATUS = "GET /connectors/A-%3EB.source/status"
OFFSETS = "/connectors/A-%3EB.source/offsets"
STOPPED = (200, {"name": "n", "connector": {"state": "STOPPED"}, "tasks": []})
STORED = {
    "offsets": [
        {"partition": {"cluster": "A", "partition": 0, "topic": "orders"}, "offset": {"offset": 99}},
        {"partition": {"cluster": "A", "partition": 0, "topic": "other"}, "offset": {"offset": 1}},
    ]
}


async def test_offsets_are_set_in_a_connector_that_is_stopped_and_read_back() -> None:
    fake = FakeConnect({STATUS: [STOPPED], f"PATCH {OFFSETS}": [(200, {})], f"GET {OFFSETS}": [(200, STORED)]})
    with fake.served() as rest:
        await to_connect(rest, "A->B.source", ClusterAlias("A"), {("orders", 0): 100})
    assert fake.asked[1] == (f"PATCH {OFFSETS}", {"offsets": STORED["offsets"][:1]})


@pytest.mark.parametrize("status", [("RUNNING", []), ("STOPPED", [{"id": 0, "state": "RUNNING"}]), ("PAUSED", [])])
async def test_offsets_of_a_connector_that_may_run_are_not_touched(status: tuple[str, list[Any]]) -> None:
    answer = (200, {"name": "n", "connector": {"state": status[0]}, "tasks": status[1]})
    fake = FakeConnect({STATUS: [answer]})
    with fake.served() as rest, pytest.raises(SwitchRefused, match="Stop it first"):
        await to_connect(rest, "A->B.source", ClusterAlias("A"), {("orders", 0): 100})
    assert len(fake.asked) == 1


async def test_other_offsets_than_were_set_are_noticed() -> None:
    other = {"offsets": [{**STORED["offsets"][0], "offset": {"offset": 5}}]}
    fake = FakeConnect({STATUS: [STOPPED], f"PATCH {OFFSETS}": [(200, {})], f"GET {OFFSETS}": [(200, other)]})
    with fake.served() as rest, pytest.raises(SwitchRefused, match="other offsets"):
        await to_connect(rest, "A->B.source", ClusterAlias("A"), {("orders", 0): 100})


async def test_while_workers_rebalance_connect_is_asked_again() -> None:
    fake = FakeConnect({STATUS: [(409, {"message": "rebalance"}), STOPPED]})
    with fake.served() as rest:
        assert (await rest.runs("A->B.source")).is_stopped


async def test_a_refusal_of_connect_says_what_it_says() -> None:
    with FakeConnect({}).served() as rest, pytest.raises(ConnectFailed, match=r"answers 404 .*: no GET"):
        await rest.runs("A->B.source")


async def test_where_no_connect_listens_it_is_named() -> None:
    with FakeConnect({}).served() as rest:
        pass
    with pytest.raises(ConnectFailed, match="does not answer"):
        await rest.connectors()


@pytest.mark.parametrize("url", ["connect:8083", "http://", "http://ann:word@connect:8083", "http://connect:8083?x=1"])
def test_an_address_that_is_none_or_holds_a_password_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ConnectRest(url)
    assert "word@" not in str(refused.value)
