"""mm2py with one more task, which writes the number of asyncio tasks to a file.

    python -m bench.soak_worker OUT FILE

Only ``run_worker`` is wrapped; everything else is mm2py's own. Each line of OUT is the monotonic time and a count,
without the counting task.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any, Final

from mm2py.cli import main as cli

EVERY_S: Final = 1.0


async def count_tasks(path: Path) -> None:
    """Write a line every second, until cancelled."""
    with path.open("w", buffering=1) as file:
        while True:
            file.write(f"{time.monotonic():.3f} {len(asyncio.all_tasks()) - 1}\n")
            await asyncio.sleep(EVERY_S)


def main() -> None:
    """Run mm2py with the arguments after the first."""
    path = Path(sys.argv.pop(1))
    run_worker = cli.run_worker

    async def accompanied(*arguments: Any, **named: Any) -> int:
        counting = asyncio.create_task(count_tasks(path), name="count tasks")
        try:
            return await run_worker(*arguments, **named)
        finally:
            counting.cancel()

    cli.run_worker = accompanied
    cli.main()


if __name__ == "__main__":
    main()
