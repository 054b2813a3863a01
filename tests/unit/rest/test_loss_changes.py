"""``.../accept`` and ``.../replay``: what is asked of a flow, how it is answered, and what the audit keeps."""

from __future__ import annotations

from typing import Any

import pytest

from mm2py.copying.replay import NowhereToReplay, ReplaySelection
from mm2py_rest.settings.loss_changes import LossRefused, NothingLost
from tests.fakes.rest_services import FakeLosses, Guarded, guarded, make_services
from tests.fakes.v1_services import FLOW

pytestmark = pytest.mark.real_time

ACCEPT = "/v1/flows/A->B/topics/orders/partitions/1/accept"
REPLAY = "/v1/flows/A->B/topics/orders/replay"


class Asked:
    """A worker whose losses are fakes."""

    def __init__(self) -> None:
        services = make_services()
        losses: Any = services.loss_changes[FLOW]
        self.losses: FakeLosses = losses
        self.worker: Guarded = guarded(services=services)

    def post(self, path: str, body: object = None) -> tuple[int, str]:
        answer = self.worker.client().post(path, json=body)
        return answer.status_code, answer.json()["message"]


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_a_gap_is_accepted_by_the_position_that_the_operator_has_seen(asked: Asked) -> None:
    assert asked.post(ACCEPT, {"position": 5, "reason": "ticket 4711"}) == (200, "It is told.")
    assert asked.post(ACCEPT) == (200, "It is told.")
    assert asked.losses.asked == [("accept", "orders", 1, 5), ("accept", "orders", 1, None)]
    told = asked.worker.told[0]
    assert (told.flow, told.status, told.body) == ("A->B", 200, '{"position": 5, "reason": "ticket 4711"}')


def test_a_command_that_no_worker_has_answered_yet_is_not_called_done(asked: Asked) -> None:
    asked.losses.is_done = False
    assert asked.post(ACCEPT)[0] == 202
    assert asked.post(REPLAY)[0] == 409, "the target refused some of the records"


def test_records_are_replayed_by_topic_partition_and_offset(asked: Asked) -> None:
    assert asked.post(REPLAY) == (200, "It is told.")
    assert asked.post(REPLAY, {"partition": 0, "offset": 9, "stop_partitions": True})[0] == 200
    assert asked.losses.asked == [
        ("replay", ReplaySelection("orders"), False),
        ("replay", ReplaySelection("orders", 0, 9), True),
    ]


@pytest.mark.parametrize("path", [ACCEPT, REPLAY])
@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (NothingLost("there is none."), 404),
        (LossRefused("not now."), 409),
        (NowhereToReplay("A.orders is not there.", remedy="Export."), 409),
    ],
)
def test_what_is_not_done_says_why(asked: Asked, path: str, refusal: Exception, status: int) -> None:
    asked.losses.refusal = refusal
    assert asked.post(path) == (status, str(refusal))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ACCEPT, {"position": -1}),
        (ACCEPT, {"offset": 1}),
        (ACCEPT, {"reason": "password=hunter2"}),
        (ACCEPT.replace("/1/", "/x/"), None),
        (REPLAY, {"partition": 1 << 31}),
        (REPLAY, {"stop_partitions": "perhaps"}),
        (REPLAY, {"reason": "two\nlines"}),
    ],
)
def test_what_cannot_be_meant_changes_nothing(asked: Asked, path: str, body: object) -> None:
    assert asked.post(path, body)[0] == 400
    assert asked.losses.asked == []
    assert "hunter2" not in asked.worker.told[0].body


def test_a_flow_that_the_file_does_not_have_has_no_gaps(asked: Asked) -> None:
    assert asked.post(ACCEPT.replace("A->B", "X->Y"))[0] == 404
    assert asked.post(REPLAY.replace("A->B", "B->A"))[0] == 409, "it is refused"
