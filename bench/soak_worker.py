"""mm2py as ever, with one task more that writes down how many tasks there are.

    python -m bench.soak_worker OUT FILE

Nothing of mm2py is changed but that its ``run_worker`` is accompanied; what it does is its own. Each line of OUT is
the monotonic time and a count, the counting task left out.
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
    """Run the command with the arguments behind the first."""
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
