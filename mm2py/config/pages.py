"""Writes ``mm2.properties.example`` and ``docs/settings.md`` from the table of settings.

``python -m mm2py.config.pages`` in a checkout writes both again, and the pages of ``mm2py/checks/pages.py``; tests
compare them with the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from mm2py.config.flow_part import FlowPart
from mm2py.config.flow_properties import stored_keys
from mm2py.config.row import Key, Reader, Section, shown_default
from mm2py.config.tables import SECTIONS

WIDTH: Final = 120
HEADER: Final = (
    "Settings of mm2py: every one that works, with its default, its unit and its effect.",
    "The format is that of Java properties, as MirrorMaker 2 reads it. `=`, `:` or a blank separates key and"
    " value. A line that begins with `#` or `!` is a comment. A `\\` at the end continues a line. Write the `\\` of"
    " a pattern twice. A comment behind a value would be a part of the value. Numbers have no separators, true and"
    " false are the only booleans, commas separate the entries of a list.",
    "Four lines make a file: the clusters, their addresses, a flow. They are the lines below without a `#`. Lines"
    " with one `#` show defaults. Lines with two have no default and show an example. A and B stand for your"
    " aliases.",
    "A setting counts only at the level where it is shown: at the top (`topics`), for a cluster"
    " (`A.consumer...`), for a flow (`A->B.topics`). A setting shown at the top of the file may also be written"
    " for one flow, and then overrides the top, unless it is said to be for the whole file.",
)
"""The paragraphs at the top of the example."""
WHERE: Final = {
    Reader.FILE: "top",
    Reader.FAMILY: "top",
    Reader.CLUSTER_FAMILY: "`A.`",
    Reader.FLOW_FAMILY: "`A->B.`",
    Reader.CONNECTOR: "top, `A->B.`",
    Reader.FLOW_ONLY: "`A->B.`",
    Reader.WORKER: "`B.`",
    Reader.CONSUMER: "`A.consumer.`",
    Reader.PRODUCER: "`B.producer.`",
    Reader.ADMIN: "`A.admin.`, `B.admin.`",
    Reader.SECURITY: "top, `A.`, `A.consumer.`, `B.producer.`",
    Reader.OWN_TOP: "top",
    Reader.OWN_CLUSTER: "`B.`",
    Reader.OWN_FLOW: "`A->B.`",
}
PAGE_INTRO: Final = """\
# Settings

Every setting that works, by section of [mm2.properties.example](../mm2.properties.example), which shows each in a file.
Both are made of one table in the code. *Where* is where a line may stand: at the top of the file (`topics`), for a flow
(`A->B.topics`), for a cluster (`B.mm2py.group`), or for the clients of a cluster (`A.consumer.fetch.max.bytes`). *A
change*, by `mm2py apply` or REST, is taken up in place, restarts the tasks of the flow, or needs the worker to restart.
[Configuration](configuration.md) tells how files, flows and stored settings come together.
"""


def example_text() -> str:
    """Return ``mm2.properties.example``."""
    lines = [*_comment("\n\n".join(HEADER))]
    for section in SECTIONS:
        lines += ["", f"# --- {section.title} ".ljust(WIDTH, "-"), *_comment(section.intro)]
        for block in section.blocks:
            if block.text and block.lines:
                lines += ["", *_comment(block.text)]
            for line in block.lines:
                lines += _continued(line)
    return "\n".join([*lines, ""])


def settings_page() -> str:
    """Return ``docs/settings.md``."""
    lines = [PAGE_INTRO]
    for section in SECTIONS:
        lines += [f"## {section.title[0].upper()}{section.title[1:]}", ""]
        lines += [*wrap(section.intro, WIDTH, break_on_hyphens=False), ""] if section.intro else []
        lines += ["| setting | default | where | a change | what it does |", "| --- | --- | --- | --- | --- |"]
        lines += [*_rows(section), ""]
    return "\n".join(lines)


def _rows(section: Section) -> Iterator[str]:
    of_example = ""
    for block in section.blocks:
        key = block.key
        if key is None:
            of_example = block.text
            continue
        default = "" if key.default in (None, "", ()) else f"`{shown_default(key.default)}`"
        where = ", ".join(WHERE[reader] for reader in key.readers)
        name = f"`{key.name}{'...' if key.is_family else ''}`"
        cells = [name, default, where, _change(key), block.text or of_example or "see above"]
        of_example = ""
        yield "| " + " | ".join(cell.replace("\n", " ").replace("|", "\\|") for cell in cells) + " |"


def _change(key: Key[Any]) -> str:
    """Return what a change of a setting costs."""
    if key not in stored_keys().values():
        return "worker restarts"
    parts = key.parts or (FlowPart.TASKS,)
    if FlowPart.ON_OFF in parts:
        return "flow starts or drains"
    return "in place" if all(part.is_in_place for part in parts) else "tasks restart"


def _comment(text: str) -> Iterator[str]:
    for paragraph in text.split("\n") if text else ():
        yield from (f"# {line}" for line in wrap(paragraph, WIDTH - 2, break_on_hyphens=False)) if paragraph else ("#",)


def _continued(line: str) -> list[str]:
    """Return a line of a file in pieces that fit, as ``java.util.Properties`` joins them."""
    if len(line) <= WIDTH or "\n" in line:
        return [line]
    marks = line[: len(line) - len(line.lstrip("#"))]
    first, *others = wrap(line, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    others = wrap(" ".join(others), WIDTH - 2 - len(f"{marks}    "), break_long_words=False, break_on_hyphens=False)
    pieces = [first, *(f"{marks}    {piece}" for piece in others)]
    return [f"{piece} \\" for piece in pieces[:-1]] + pieces[-1:]


def write(root: Path) -> None:
    """Write both files of a checkout."""
    (root / "mm2.properties.example").write_text(example_text())
    (root / "docs" / "settings.md").write_text(settings_page())


if __name__ == "__main__":
    from mm2py.checks import pages as pages_of_checks
    from mm2py.dr import pages as page_of_recoveries

    write(Path(__file__).parents[2])
    pages_of_checks.write(Path(__file__).parents[2])
    page_of_recoveries.write(Path(__file__).parents[2])
