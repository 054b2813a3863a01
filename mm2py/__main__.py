"""``python -m mm2py`` and the command ``mm2py``."""

import gc
import signal
import sys
from typing import NoReturn


def run() -> NoReturn:
    """Start the command; Ctrl-C while it still loads ends it without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # what is loaded stays: looking for garbage in it takes a tenth of the time
    from mm2py.errors import ConfigError  # noqa: PLC0415

    try:
        from mm2py.cli.main import main  # noqa: PLC0415  (takes half a second)
    except ConfigError as error:  # MM2PY_NATIVE requires the core, which is missing, or is wrong
        sys.stderr.write(f"mm2py: {error}\n")
        sys.exit(2)
    gc.freeze()
    gc.enable()
    main()


if __name__ == "__main__":
    run()
