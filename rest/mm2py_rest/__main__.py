"""``python -m mm2py_rest``: the REST process of a worker. The worker starts it."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

LOOK_EVERY_MS: Final = 100


@contextlib.contextmanager
def ending_with_worker(arguments: Sequence[str]) -> Iterator[None]:
    """End the process at once if its worker ends while this context is open. After that, ``server.py`` does the same.

    The story: a worker is killed two seconds after its start, and started again. Its REST process is still importing
    modules and would keep the port: the new worker could not listen there.

    Args:
        arguments: of the command line; ``--channel`` names the descriptor of the channel to the worker.
    """
    channel = int(arguments[arguments.index("--channel") + 1])
    is_over = threading.Event()

    def watch() -> None:
        closing = select.poll()
        closing.register(channel, select.POLLHUP)
        while not is_over.is_set():
            if closing.poll(LOOK_EVERY_MS) and not is_over.is_set():
                os._exit(0)

    watching = threading.Thread(target=watch, name="worker", daemon=True)
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()


if __name__ == "__main__":
    if "--channel" in sys.argv:
        with ending_with_worker(sys.argv):
            from mm2py_rest.server import main
    else:
        from mm2py_rest.server import main  # which prints its usage
    main()
