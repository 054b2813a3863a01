"""Where Python finds the three packages of a checkout, also if other versions are installed."""

import os
from pathlib import Path


def python_path(checkout: Path) -> str:
    """Return a ``PYTHONPATH``, for a process that has to run the code of this checkout."""
    return os.pathsep.join([str(checkout), str(checkout / "connectors"), str(checkout / "rest")])
