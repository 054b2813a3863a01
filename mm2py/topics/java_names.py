"""Java class names that a settings file may hold, and what stands for them here.

MM2 loads whatever class a setting such as ``replication.policy.class`` names. mm2py looks the name up in a table: text
from a file or a REST request is never imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from mm2py.errors import ConfigError

T = TypeVar("T")

MIRROR_PACKAGE = "org.apache.kafka.connect.mirror"


def ours_for(key: str, class_name: str, known: Mapping[str, T]) -> T:
    """Return what stands for a Java class.

    Args:
        key: the setting that holds the name, for the message.
        class_name: a full Java name, or its last part alone; surrounding blanks do not count.
        known: full Java names, and short names of our own, with what stands for them.
    Raises:
        ConfigError: nothing of ours stands for that class.
    """
    wanted = class_name.strip()
    for name, ours in known.items():
        if wanted in (name, name.rpartition(".")[2]):
            return ours
    raise ConfigError(
        f"{key}: mm2py has nothing that stands for the class {wanted!r}.",
        remedy=f"Use one of: {', '.join(known)}. Classes of one's own cannot be loaded.",
    )
