"""Blocks for large frames: used again when nobody looks at them any more, never before."""

from __future__ import annotations

import pytest

from mm2py.kafka.transport.wire import KEPT_FROM_BYTES, KEPT_S, MOST_SPARE, STEP_BYTES, FrameMemory

LARGE = 12 * STEP_BYTES


@pytest.mark.parametrize("size", [KEPT_FROM_BYTES, STEP_BYTES, STEP_BYTES + 1, LARGE - 1, LARGE])
def test_a_frame_has_exactly_its_size(size: int) -> None:
    memory = FrameMemory()
    for _ in range(3):
        assert len(memory.take(size, 0.0)) == size


def test_no_block_is_overwritten_while_a_view_of_it_is_read() -> None:
    """The slice of a batch outlives its frame: in a queue, or half sent."""
    memory = FrameMemory()
    slices = []
    for number in range(10):
        frame = memory.take(LARGE, 0.0)
        frame[:] = bytes([number]) * LARGE
        slices.append(frame[1000:2000])
        del frame
    assert memory.kept_bytes == 10 * LARGE
    assert [bytes(piece) for piece in slices] == [bytes([number]) * 1000 for number in range(10)]
    del slices[:5]
    memory.take(LARGE, 0.0)[:] = bytes(LARGE)
    assert [bytes(piece) for piece in slices] == [bytes([number]) * 1000 for number in range(5, 10)]
    assert memory.kept_bytes == 10 * LARGE


def test_small_frames_keep_nothing() -> None:
    memory = FrameMemory()
    assert len(memory.take(KEPT_FROM_BYTES - 1, 0.0)) == KEPT_FROM_BYTES - 1
    assert memory.kept_bytes == 0


def test_a_large_block_is_not_spent_on_a_small_frame() -> None:
    memory = FrameMemory()
    size = int(MOST_SPARE * LARGE)
    memory.take(size, 0.0)
    fits = memory.take(LARGE, 0.0)
    assert memory.kept_bytes == size
    del fits
    small = memory.take(LARGE - STEP_BYTES, 0.0)
    assert memory.kept_bytes == size + LARGE - STEP_BYTES
    assert len(small) == LARGE - STEP_BYTES


def test_unused_blocks_are_given_back_and_those_in_use_are_not() -> None:
    memory = FrameMemory()
    held = memory.take(LARGE, 0.0)
    held[:] = b"x" * LARGE
    memory.take(2 * LARGE, 0.0)
    assert memory.kept_bytes == 3 * LARGE
    memory.take(4, 2 * KEPT_S)
    assert memory.kept_bytes == LARGE
    assert bytes(held) == b"x" * LARGE
    del held
    memory.take(4, 4 * KEPT_S)
    assert memory.kept_bytes == 0


def test_a_block_that_is_used_now_and_then_stays() -> None:
    memory = FrameMemory()
    for now_s in (0.0, 0.8 * KEPT_S, 1.6 * KEPT_S):
        memory.take(LARGE, now_s)
    memory.take(4, 2.4 * KEPT_S)
    assert memory.kept_bytes == LARGE


def test_blocks_that_are_free_make_room_for_a_new_one() -> None:
    memory = FrameMemory(limit_bytes=2 * LARGE)
    held = memory.take(LARGE, 0.0)
    held[:] = b"x" * LARGE
    memory.take(LARGE, 0.0)
    small = memory.take(KEPT_FROM_BYTES, 0.0)
    assert memory.kept_bytes == LARGE + KEPT_FROM_BYTES
    much = memory.take(2 * LARGE, 0.0)
    assert memory.kept_bytes == 3 * LARGE + KEPT_FROM_BYTES, "only what is free makes room"
    assert bytes(held) == b"x" * LARGE
    assert len(small) + len(much) == KEPT_FROM_BYTES + 2 * LARGE
