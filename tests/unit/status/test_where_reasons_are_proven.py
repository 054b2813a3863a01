"""docs/internals/tests.md says for each reason why a topic is not copied where a test makes it happen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from mm2py.status.not_copied import Reason

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "docs" / "internals" / "tests.md").read_text().partition("| where | reasons |")[2].partition("\n\n")[0]


def rows() -> Mapping[str, list[str]]:
    """Return the reasons by where they are proven."""
    cells = [line.strip("|").split("|") for line in TABLE.splitlines()[2:]]
    return {where.strip(): re.findall(r"`([a-z-]+)`", reasons) for where, reasons in cells}


def test_each_reason_stands_in_one_row() -> None:
    assert Counter(reason for reasons in rows().values() for reason in reasons) == Counter(map(str, Reason))


def test_a_file_on_real_brokers_names_each_reason_of_its_row() -> None:
    on_brokers = {where: reasons for where, reasons in rows().items() if where.startswith("real brokers")}
    assert len(on_brokers) == len(rows()) == 9
    for where, reasons in on_brokers.items():
        (path,) = re.findall(r"`(tests/.*)`", where)
        text = (ROOT / path).read_text()
        assert [reason for reason in reasons if f'"{reason}"' not in text] == [], path
