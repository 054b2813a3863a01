"""What a joiner has to know of a control log whose oldest records are gone: who is there already, and who leads.

Connect's workers learn it from the group coordinator.
"""

from __future__ import annotations

import asyncio

from structlog.typing import FilteringBoundLogger

from mm2py.group.log.control_log import ControlLog, Opening


async def open_with_history(control_log: ControlLog, session_timeout_s: float, log: FilteringBoundLogger) -> Opening:
    """Return where to begin; without a snapshot of what is gone, wait for one while somebody there knows more.

    The story: an operator deletes the log's records. w1 and w2 have read them, and go on; w3 joins, finds nobody, and
    would lead a group of its own among theirs. Their leader writes a snapshot each minute. Where nobody writes for a
    session time-out nobody is there who could.

    Raises:
        ControlLogUnusable, Mm2Error: as ``ControlLog.open``.
    """
    last: int | None = None
    while True:
        opening = await control_log.open()
        end = opening.entries[-1].offset if opening.entries else opening.log_start_offset - 1
        if opening.state is not None or opening.log_start_offset == 0 or end == last:
            return opening
        if last is None:
            log.warning(
                "control_log.beginning_gone",
                topic=control_log.topic,
                before=opening.log_start_offset,
                effect="who knows what stood there is waited for, a session time-out at most",
            )
        last = end
        await asyncio.sleep(session_timeout_s)
