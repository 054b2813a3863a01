"""What mm2py's commands say of arguments that cannot be understood: an error with its remedy, as of everything else."""

from __future__ import annotations

import argparse
from typing import NoReturn

from mm2py.errors import ConfigError


class CommandParser(argparse.ArgumentParser):
    """Raises ConfigError where argparse would end the process; ``prog`` names the command whose help is offered."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message[:1].upper()}{message[1:]}.", remedy=f"Try {self.prog} --help.")
