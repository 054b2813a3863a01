"""A source task's pieces of work."""

from __future__ import annotations

import asyncio

import pytest

from mm2py_connectors.source.task.source_task import SourceTask


def test_a_piece_of_work_that_is_cancelled_before_it_begins_is_not_made() -> None:
    """The story: a partition is fenced out in the same moment in which the task fails. Python warned of a coroutine
    that was never awaited."""
    task = SourceTask.__new__(SourceTask)
    task._busy = set()
    made: list[str] = []

    async def end_incarnation() -> None:
        pass

    def make() -> object:
        made.append("it")
        return end_incarnation()

    async def story(*, fails: bool) -> None:
        async with asyncio.TaskGroup() as task._tasks:
            task._once(("fenced", ""), make)  # type: ignore[arg-type]
            task._once(("fenced", ""), make)  # type: ignore[arg-type]
            if fails:
                raise ConnectionError

    with pytest.raises(ExceptionGroup):
        asyncio.run(story(fails=True))
    assert made == []
    task._busy.clear()
    asyncio.run(story(fails=False))
    assert made == ["it"]
