"""How commands end, by what they found out. ``/v1`` says the same code as ``exit_code``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.offset_report import OffsetReport
from mm2py.status.report import Report
from mm2py.status.why import Explanation, Replicated

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_WAITS: Final = 3
"""Something waits for an operator."""
EXIT_CHANGES: Final = 3
"""A command was only asked what would change, and something would. See ``exit_of_plan``."""
EXIT_INTERRUPTED: Final = 130


def exit_of_plan(*, failed: bool, changes: bool) -> int:
    """Return the exit code of a command that was only asked what would change, and has stored nothing.

    ``EXIT_DONE``: nothing would. ``EXIT_FAILED``: a cluster did not answer, or refused, so not all is known.
    ``EXIT_CHANGES``: something would. A wrong file, or wrong arguments, are ``EXIT_USAGE`` before anything is asked.
    """
    if failed:
        return EXIT_FAILED
    return EXIT_CHANGES if changes else EXIT_DONE


def exit_of_report(report: Report) -> int:
    """Return the exit code of ``mm2py status``."""
    if not report.is_whole:
        return EXIT_FAILED
    return EXIT_DONE if report.is_well else EXIT_WAITS


def exit_of_groups(reports: Sequence[ConsumerGroupReport], unread: str) -> int:
    """Return the exit code of ``mm2py groups``.

    Args:
        unread: why the source does not answer; empty if it does.
    """
    if unread:
        return EXIT_FAILED
    return EXIT_DONE if all(one.ready for one in reports) else EXIT_WAITS


def exit_of_explanation(found: Explanation) -> int:
    """Return the exit code of ``mm2py why``."""
    if found.replicated is Replicated.YES:
        return EXIT_DONE
    return EXIT_FAILED if found.replicated is Replicated.UNKNOWN else EXIT_WAITS


def exit_of_offsets(reports: Sequence[OffsetReport], unread: str) -> int:
    """Return the exit code of ``mm2py translate``. An answer by the target alone counts: a failover needs it.

    Args:
        unread: why the source does not answer; empty if it does.
    """
    if all(one.other_offset is not None for one in reports):
        return EXIT_DONE
    return EXIT_FAILED if unread else EXIT_WAITS
