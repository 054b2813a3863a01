"""Workers that stop, die and freeze: each record is there once and in order, whatever becomes of them."""

from __future__ import annotations

from tests.faults.scene import Pair, Scene


def test_clean_stops_under_load_repeat_nothing_and_leave_no_marker(pair: Pair) -> None:
    """F02: SIGTERM three times; nothing needs to be fenced."""
    with Scene(pair, "stopped") as scene:
        for _ in range(3):
            scene.copy_more(2_000)
            assert scene.run.terminate() == 0
            scene.loads.wait_for(500)
            scene.run.start()
        scene.copy_more(1_000)
        scene.conclude()
        assert all(event["records"] == 0 for event in scene.run.events("partitions.reconciled"))
        assert not scene.run.events("drain.timeout")
