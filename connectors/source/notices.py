"""What was said of a thing that still stands as it did: a schedule that meets it again need not say it again."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Notices:
    """Remembers what was said, by what it was said of."""

    def __init__(self) -> None:
        self._said: dict[Hashable, str] = {}

    def is_new(self, of: Hashable, text: str = "") -> bool:
        """Tell whether this is to be said: nothing was said of it yet, or something else. From now on it was said."""
        if self._said.get(of) == text:
            return False
        self._said[of] = text
        return True

    def is_over(self, of: Hashable) -> bool:
        """Tell whether something was said of it, and forget it: should it come back, it is news again."""
        return self._said.pop(of, None) is not None

    def keep(self, still_there: Callable[[Hashable], bool]) -> None:
        """Forget all that was said of things that are not there any more."""
        self._said = {of: text for of, text in self._said.items() if still_there(of)}
