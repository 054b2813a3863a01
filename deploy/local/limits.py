"""Limits of the operating system that brokers would hit, checked before they start."""

import resource
import sys
from pathlib import Path

from deploy.local.errors import MachineTooSmall

FEWEST_OPEN_FILES = 4_096  # a broker opens three files a log segment and a socket a connection
FEWEST_MAPPINGS = 65_530  # the kernel's own default; a broker maps two indexes a segment


def shortage(open_files: int, mappings: int | None) -> tuple[str, str] | None:
    """Return the missing resource and its remedy, or None if brokers have enough.

    Args:
        open_files: the hard limit of open files of this process; -1 is no limit.
        mappings: the kernel's ``vm.max_map_count``, or None where it has none.
    """
    if 0 <= open_files < FEWEST_OPEN_FILES:
        return (
            f"This process may open {open_files} files, a broker needs {FEWEST_OPEN_FILES}.",
            "Raise the hard limit (ulimit -Hn; nofile in /etc/security/limits.conf; --ulimit nofile in a container).",
        )
    if mappings is not None and mappings < FEWEST_MAPPINGS:
        return (
            f"vm.max_map_count is {mappings}, brokers need {FEWEST_MAPPINGS}.",
            f"Run as root: sysctl -w vm.max_map_count={FEWEST_MAPPINGS}",
        )
    return None


def check_limits() -> None:
    """Raise this process's soft limit of open files as far as needed, and check the limits that it cannot raise.

    Raises:
        MachineTooSmall: names the limit, the missing amount, and the command that raises it.
    """
    if sys.platform != "linux":
        raise MachineTooSmall("The starter needs /proc to clean up.", remedy="Run it on Linux, or in a container.")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wrong = shortage(-1 if hard == resource.RLIM_INFINITY else hard, _mappings())
    if wrong is not None:
        raise MachineTooSmall(wrong[0], remedy=wrong[1])
    if soft != resource.RLIM_INFINITY and soft < FEWEST_OPEN_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEWEST_OPEN_FILES, hard))


def _mappings() -> int | None:
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except OSError:
        return None
