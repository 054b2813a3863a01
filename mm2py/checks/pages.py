"""Writes ``docs/checks/`` and the table of ``docs/rights.md``, from the tables in the code.

``python -m mm2py.config.pages`` in a checkout writes them again; a test compares them with the tables.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Final

from mm2py.checks.rights import rights_table
from mm2py.checks.table import CHECKS, Category, CheckRow

WIDTH: Final = 120
INTRO: Final = """\
# What is checked: `mm2py check`

    mm2py check FILE [--pre] [--clusters A ...] [--json]

Asks all clusters of `FILE` whether they give what its flows need, before anything runs. It only reads: no topic,
setting, group or ACL is changed, and no worker has to run. Use `--pre` before mm2py has ever run with this file: its
internal topics need not exist then.

    Addresses
    √ MM0101 A answers at a1:9092 (3 brokers, Kafka 4.1).
    × MM0101 B does not answer: b1:9092 cannot be reached: Connection refused.
             Check address, port and network.

    Rights
    × MM0401 A->B: A denies READ on topic orders (needed for copying).
             kafka-acls --bootstrap-server a1:9092 --add --allow-principal User:mirror --operation Read ...

Where the terminal cannot show these signs, they are `ok`, `!!` and `X`.

| sign | `state` in `--json` | |
| --- | --- | --- |
| √ | `ok` | it is as it should be |
| ‼ | `warning` | mm2py runs, but see the line below |
| × | `failed` | a flow, or a part of it, does not run |
| ? | `not checkable` | it cannot be known without writing, or a right or an answer is missing; it may be wrong |

| exit code | |
| --- | --- |
| 0 | no × |
| 1 | a ×; a cluster that does not answer is one |
| 2 | the file or the arguments are wrong |

The clusters are asked as the users of `FILE`, each flow's source and target. The commands in a line name the user that
`FILE` tells; where that is not known, put the user of mm2py in place of `PRINCIPAL`. A broker may map the names of
certificates to others (`ssl.principal.mapping.rules`). An administrator runs the commands, with `--command-config`
where the cluster asks for a login.

`--json` prints one object: `format`, `exit_code`, `flows[]`, and `results[]` with `code`, `category`, `state`,
`subject` (a cluster, a flow, or `the file`), `sentence`, `hint`, `items[]` (all topics, groups or brokers that the
sentence counts), `commands[]` (all commands that grant what is missing), and `waits_for` (the cluster without whose
answer it could not be checked). Codes keep their meaning.

It checks the file, not what is stored: `mm2py status` shows where both differ.

| code | category | what is checked |
| --- | --- | --- |
"""
_TABLE_HEAD: Final = "| for | on | resource | operations |"


def index_page() -> str:
    """Return ``docs/checks/README.md``."""
    rows = [
        f"| [{row.code}]({row.code}.md) | {row.category.value} | {row.title} |"
        for category in Category
        for row in CHECKS
        if row.category is category
    ]
    return INTRO + "\n".join([*rows, ""])


def check_page(row: CheckRow) -> str:
    """Return the page of one check."""
    unknown = f"A cluster that it needs does not answer{f', or {row.unknown}' if row.unknown else ''}."
    parts = [
        ("What is asked", row.asks),
        ("Why it matters", row.matters),
        ("What to do", row.remedy),
        ("When it is not checkable", "Never." if row.category is Category.FILE else unknown),
    ]
    lines = [f"# {row.code}: {row.title}", "", f"Category: {row.category.value}. [All checks](README.md)", ""]
    for heading, text in parts:
        lines += [f"## {heading}", "", *wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False), ""]
    return "\n".join(lines)


def with_rights_table(page: str) -> str:
    """Return ``docs/rights.md`` with the table of the code in place of its own."""
    lines = page.splitlines()
    first = lines.index(_TABLE_HEAD)
    last = next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))
    return "\n".join([*lines[:first], *rights_table(), *lines[last:], ""])


def write(root: Path) -> None:
    """Write all of it into a checkout."""
    folder = root / "docs" / "checks"
    folder.mkdir(exist_ok=True)
    (folder / "README.md").write_text(index_page())
    for row in CHECKS:
        (folder / f"{row.code}.md").write_text(check_page(row))
    rights = root / "docs" / "rights.md"
    rights.write_text(with_rights_table(rights.read_text()))
