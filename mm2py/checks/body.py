"""The JSON that ``mm2py check --json`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from pydantic import Field

from mm2py.checks.results import CheckResult, CheckState, exit_of_checks
from mm2py.checks.table import Category
from mm2py.status.bodies import FormatBody, JsonBody


class CheckResultBody(JsonBody):
    """What one check has found about one subject."""

    code: str = Field(examples=["MM0101"])
    """The check: it keeps its meaning. Each has a page in docs/checks."""
    category: Category
    """The heading under which it is shown."""
    state: CheckState
    """How it ended."""
    subject: str = Field(examples=["A"])
    """A cluster, a flow, or ``the file``."""
    sentence: str
    """What was found."""
    hint: str
    """What to do; empty: nothing."""
    items: tuple[str, ...]
    """All topics, groups, brokers or addresses that the sentence counts."""
    commands: tuple[str, ...]
    """The commands that grant what is missing."""
    waits_for: str
    """The cluster whose missing answer made it not checkable; empty: another reason, or it was checked."""


class ChecksBody(FormatBody):
    """All checks of a file."""

    flows: tuple[str, ...]
    """The flows that were checked."""
    results: tuple[CheckResultBody, ...]
    """In the order in which they are shown."""

    @classmethod
    def of(cls, flows: Sequence[str], results: Sequence[CheckResult]) -> Self:
        """Return the object for these results."""
        return cls(
            exit_code=exit_of_checks(results),
            flows=tuple(flows),
            results=tuple(
                CheckResultBody(
                    code=one.code,
                    category=one.category,
                    state=one.state,
                    subject=one.subject,
                    sentence=one.sentence,
                    hint=one.hint,
                    items=one.items,
                    commands=one.commands,
                    waits_for=one.waits_for,
                )
                for one in results
            ),
        )
