"""mm2py without fence and stored positions, to measure what they cost: ``python -m bench.without_fence FILE``.

They can be switched off only here. This mm2py copies with a plain producer id that cannot be fenced, announces no
incarnation, keeps no transactional id alive, and stores no position. Everything else is mm2py's own.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mm2py.cli import main as cli
from mm2py.copying.events import PositionStored
from mm2py.kafka.port import ProducerIdentity
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py_connectors.source.recovery.previous_producers import KeepAlive
from mm2py_connectors.source.task.position_keeper import PositionKeeper


def _store_nothing(keeper: PositionKeeper, _: asyncio.TaskGroup) -> float:
    """Replace ``PositionKeeper._begin_writes``: report to each waiting partition that its position is stored."""
    starting, keeper._starting = keeper._starting, {}
    for part in starting:
        part.tell(PositionStored(part.copier.identity))
    keeper._owed.clear()
    keeper._settled.set()
    return keeper._context.settings.position_interval_s


def leave_out() -> None:
    """Leave fence and stored positions out of this process."""
    start = Incarnation.start

    async def start_plain(incarnation: Incarnation) -> ProducerIdentity:
        incarnation._transactional_id = None
        return await start(incarnation)

    async def nothing(*_: Any) -> None:
        """Look up no previous producer, and announce none."""

    async def for_ever(_: KeepAlive) -> None:
        await asyncio.Event().wait()

    Incarnation.start = start_plain  # type: ignore[assignment,method-assign]
    KeepAlive.run = for_ever  # type: ignore[assignment,method-assign]
    PositionKeeper._begin_writes = _store_nothing  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    leave_out()
    cli.main()
