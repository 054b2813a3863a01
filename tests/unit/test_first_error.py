"""A task group that raises the first error as it is, and ends when it is to end."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.errors import FirstErrorGroup, Mm2Error


class Refused(Mm2Error):
    def __init__(self) -> None:
        super().__init__("The broker refused it.", remedy="Try again.")


async def fails_when_cancelled(error: Exception) -> None:
    """Fail as a request does whose connection is closed because the worker ends."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise error from None


async def tries_again_and_again(error: Exception, tries: list[int]) -> None:
    while True:
        tries.append(1)
        try:
            async with FirstErrorGroup() as tasks:
                tasks.create_task(fails_when_cancelled(error))
        except Refused:
            await asyncio.sleep(0.01)


async def test_a_loop_that_tries_again_ends_when_it_is_cancelled_although_a_request_fails_just_then() -> None:
    tries: list[int] = []
    loop = asyncio.create_task(tries_again_and_again(Refused(), tries))
    await asyncio.sleep(0.01)
    loop.cancel()
    done, _ = await asyncio.wait([loop], timeout=1)
    assert done and loop.cancelled() and len(tries) == 1


async def test_an_error_that_nobody_expects_is_raised_although_the_group_was_cancelled() -> None:
    loop = asyncio.create_task(tries_again_and_again(ValueError("a bug"), []))
    await asyncio.sleep(0.01)
    loop.cancel()
    with pytest.raises(ValueError, match="a bug"):
        await loop


async def test_a_deadline_that_passes_just_when_a_request_fails_is_a_deadline() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01), FirstErrorGroup() as tasks:
            tasks.create_task(fails_when_cancelled(Refused()))
    await asyncio.sleep(0)  # and the task is not cancelled behind it


async def test_what_fails_while_a_cancelled_task_cleans_up_is_raised_as_it_is() -> None:
    found: list[Exception] = []

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with FirstErrorGroup() as tasks:
                    tasks.create_task(refused())
            except Refused as error:
                found.append(error)

    async def refused() -> None:
        raise Refused

    task = asyncio.create_task(clean_up())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(found) == 1


async def test_an_error_of_a_task_leaves_no_cancellation_behind() -> None:
    async def refused() -> None:
        await asyncio.sleep(0)
        raise Refused

    with pytest.raises(Refused):
        async with FirstErrorGroup() as tasks:
            tasks.create_task(refused())
    this = asyncio.current_task()
    assert this is not None and this.cancelling() == 0
