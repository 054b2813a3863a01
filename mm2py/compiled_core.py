"""The compiled core: decides which code looks at batches, the package ``mm2py-native`` or the pure modules alone.

The pure modules are the specification, and they run wherever the package is not installed. The core does the same
faster for batches with the usual layout, and leaves all others to the pure modules. ``MM2PY_NATIVE=0`` turns the core
off; ``MM2PY_NATIVE=require`` fails without it. Only this module decides that.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from mm2py import __version__
from mm2py.errors import ConfigError

VARIABLE: Final = "MM2PY_NATIVE"
PACKAGE: Final = "mm2py-native"
_MODULE: Final = "mm2py_native"

Bytes = bytes | bytearray | memoryview


class WalkRules(NamedTuple):
    """What a walk requires of a batch. The names are those of the planner."""

    passed_from: int
    """The source offset from which on batches may pass."""
    max_message_bytes: int
    takes: int
    """One bit for each codec that may pass."""
    wanted_codec: int
    """The codec that every batch must have; -1: any."""
    mergeable: Sequence[int]
    """The largest size of batches that are merged, for each of the eight codecs."""
    records_max: int
    merged_max_bytes: int


class WalkedGroup(NamedTuple):
    """Batches that follow each other in the read and may become one. The walk ended after them."""

    begin: int
    batch_count: int
    first_offset: int
    next_offset: int
    leader_epoch: int
    jumps: bytes
    """As in ``Outgoing``, for ``array("q")``."""


class Core(Protocol):
    """What the compiled core does. It raises nothing for the bytes of a batch."""

    def walk(
        self, records: Bytes, position: int, log_offset: int, rules: WalkRules, /
    ) -> tuple[int, int, bool, bool, bytes, tuple[int, int, int, int, int, bytes] | None]:
        """Check the batches from ``position`` on and decide by their headers, up to one that Python must look at.

        Args:
            log_offset: where the previous batch ended; no offset is lower.
        Returns:
            Where it ended, where the last batch ended, whether transactional data was seen, whether the batch at the
            end only has to begin another group, rows, and a ``WalkedGroup`` or None. A row is seven numbers for each
            batch that passes: begin and end in ``records``, first and next source offset, newest timestamp, number of
            records, leader epoch. A control batch ends where it begins.
        """
        ...

    def merge_batches(self, pieces: Sequence[Bytes], /) -> bytearray | None:
        """Make one plain batch of the batches in ``pieces``, which are plain, whole and checked; None: Python must."""
        ...

    def fingerprints(self, pieces: Sequence[Bytes], /) -> tuple[bytes, bytes] | None:
        """Return timestamps and content fingerprints of the records of plain batches; None: Python must do it.

        Each is eight bytes for a record, for ``array("q")`` and ``array("Q")``; see ``Fingerprints``.
        """
        ...

    def changed_checksum(self, checksum: int, before: Bytes, after: Bytes, unchanged: int, /) -> int:
        """Return the checksum of bytes that began with ``before`` and begin with ``after`` now.

        Args:
            checksum: of all of them before.
            unchanged: how many follow.
        """
        ...

    def survey(
        self, data: Bytes, record_count: int, last_delta: int, wanted_delta: int, refuse_null_keys: bool, /
    ) -> tuple[int, int, int | None] | None:
        """Check decompressed records, and return what is ``Kept`` of them; None: Python must look at them."""
        ...

    def renumber(
        self, data: Bytes, position: int, record_count: int, base_offset: int, one_timestamp: bool, /
    ) -> tuple[bytearray, int, int, int, int, bytes] | None:
        """Copy surveyed records, with new offset deltas, and with ``one_timestamp`` without timestamp deltas.

        Returns:
            The fields of ``Renumbered``, but the greatest timestamp delta in place of the timestamp, and the jumps as
            in ``WalkedGroup``; None: Python must do it.
        """
        ...


_FUNCTIONS: Final = [name for name in vars(Core) if not name.startswith("_")]


class CoreRequired(ConfigError):
    """``MM2PY_NATIVE=require``, and the core cannot be used."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{VARIABLE} is 'require', but {why}.",
            remedy=f"Install {PACKAGE} {__version__}, or unset {VARIABLE} to run without it, slower.",
        )


class CoreChoice(NamedTuple):
    """Which code looks at batches."""

    core: Core | None
    why_not: str
    """Why the compiled core does not; empty if it does."""

    def __str__(self) -> str:
        return f"without the compiled core: {self.why_not}" if self.why_not else "with the compiled core"


def choose(environment: Mapping[str, str], load: Callable[[str], Any] = importlib.import_module) -> CoreChoice:
    """Choose by the environment and by what is installed.

    Raises:
        CoreRequired: the environment asks for the core, and it cannot be used.
        ConfigError: the variable has a value that does not exist.
    """
    wish = environment.get(VARIABLE, "")
    if wish not in ("", "0", "1", "require"):
        raise ConfigError(f"{VARIABLE} is {wish!r}.", remedy=f"Set {VARIABLE} to 0, 1 or require, or unset it.")
    if wish == "0":
        return CoreChoice(None, f"{VARIABLE}=0")
    try:
        module = load(_MODULE)
    except ModuleNotFoundError:
        why_not = f"{PACKAGE} is not installed"
    except ImportError as error:
        why_not = f"{PACKAGE} cannot be loaded ({error})"
    else:
        version = getattr(module, "__version__", "unknown")
        missing = [name for name in _FUNCTIONS if not hasattr(module, name)]
        why_not = "" if version == __version__ else f"{PACKAGE} is of version {version}, mm2py of {__version__}"
        if not why_not and missing:
            why_not = f"{PACKAGE} was built before and has no {missing[0]}"
        if not why_not:
            return CoreChoice(cast("Core", module), "")
    if wish == "require":
        raise CoreRequired(why_not)
    return CoreChoice(None, why_not)


CHOICE: Final = choose(os.environ)
CORE: Final = CHOICE.core
