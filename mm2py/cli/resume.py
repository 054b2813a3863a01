"""``mm2py resume FILE A->B``: the counterpart of ``mm2py pause``, in the same module.

Counterpart: ``PUT /connectors/NAME/resume`` of Connect.
"""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.cli.pause import PauseArguments, run_command
from mm2py.cli.pause import parse_arguments as parse


def parse_arguments(arguments: Sequence[str]) -> PauseArguments:
    """Read what follows ``resume`` on the command line. Raises: ConfigError."""
    return parse(arguments, "resume")


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says after ``resume``, and return the exit code. Raises: as ``pause.run``."""
    return run_command("resume", arguments)
