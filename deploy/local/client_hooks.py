"""Hooks of ``mm2py dr`` for clients of demos and tests: an operator's own command, and the files that clients obey.

The fence is a file for each cluster, and so is the name of the cluster where clients belong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

HOOK: Final = """#!/bin/sh
# What an operator's own command would do: stop producers, let them go, send all clients to the other cluster.
told=$(cat)
source=$(echo "$told" | sed 's/.*"flow": "\\([^-]*\\)->.*/\\1/')
[ -n "$source" ] || exit 1  # mm2py was killed before it said anything
case $2 in
fence) touch "$1/$source.fenced" ;;
unfence) rm -f "$1/$source.fenced" ;;
switch) echo "$told" | sed 's/.*"to": "\\([^"]*\\)".*/\\1/' > "$1/new" && mv "$1/new" "$1/at" ;;
esac
"""


class ClientHooks:
    """The command, for the fence and for the switch, and what it has told clients."""

    def __init__(self, folder: Path, alias: str) -> None:
        """``alias``: the cluster where clients belong at first."""
        self.folder = folder
        self.hook = folder / "hook"
        self.hook.write_text(HOOK)
        self.hook.chmod(0o755)
        self.send_to(alias)

    @property
    def command(self) -> str:
        """What ``--hook-fence`` and ``--hook-switch`` take."""
        return f"{self.hook} {self.folder}"

    @property
    def at(self) -> str:
        """The cluster where clients belong."""
        return (self.folder / "at").read_text().strip()

    def send_to(self, alias: str) -> None:
        """Send clients to a cluster, as the hook does."""
        (self.folder / "new").write_text(f"{alias}\n")
        (self.folder / "new").rename(self.folder / "at")

    def is_fenced(self, alias: str) -> bool:
        """Whether the producers of a cluster are stopped."""
        return (self.folder / f"{alias}.fenced").exists()
