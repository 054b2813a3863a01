"""``python -m mm2py`` and the command ``mm2py``."""

import signal
from typing import NoReturn


def run() -> NoReturn:
    """Start the command; Ctrl-C while it still loads ends it without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from mm2py.cli.main import main  # noqa: PLC0415  (takes half a second)

    main()


if __name__ == "__main__":
    run()
