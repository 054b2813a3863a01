"""The settings file that does what a mirror did. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import javaproperties

from mm2py.flow import ARROW


def settings_text(entries: Mapping[str, str], clusters: Sequence[str], said: str) -> str:
    """Return the file: what counts for all, then each cluster, then each flow.

    Args:
        said: what was taken over, in a few words.
    """
    sections: dict[str, list[str]] = {"": []}
    by_length = sorted(clusters, key=len, reverse=True)
    for key, value in entries.items():
        line = javaproperties.join_key_value(key, value.strip(), separator=" = ", ensure_ascii=True)
        sections.setdefault(_section(key, by_length), []).append(line)
    lines = [f"# Made by mm2py takeover of {said}.".encode("ascii", "replace").decode()]
    for title in sorted(sections, key=lambda title: (title != "", ARROW in title)):
        lines += ["", *([f"# {title}".encode("ascii", "replace").decode()] if title else []), *sections[title]]
    return "\n".join([*lines, ""])


def _section(key: str, clusters: Sequence[str]) -> str:
    """Return the cluster or the flow that a key is about; empty: all."""
    for source in clusters:
        for target in clusters:
            if key.startswith(f"{source}{ARROW}{target}."):
                return f"{source}{ARROW}{target}"
    return next((alias for alias in clusters if key.startswith(f"{alias}.")), "")
