"""``make quick``: a changed line is tested by the cheapest tests that run it, also where the map is older."""

from __future__ import annotations

from tests.quick.choose import Hunk, build, changed_lines, changed_tests, choose, hunks, lines_at

DIFF = """\
diff --git mm2py/a.py mm2py/a.py
--- mm2py/a.py
+++ mm2py/a.py
@@ -3,0 +4,2 @@ def a():
+    one
+    two
@@ -10,2 +13 @@ def b():
-    three
-    four
+    five
@@ -20 +21,0 @@
-    gone
"""


def test_lines_of_a_newer_text_are_found_in_the_older_one() -> None:
    changes = hunks(DIFF)["mm2py/a.py"]
    assert changes == [
        Hunk(range(4, 4), range(4, 6)),
        Hunk(range(10, 12), range(13, 14)),
        Hunk(range(20, 21), range(22, 22)),
    ]
    assert changed_lines(changes) == {4, 5, 13, 21, 22}
    assert lines_at([3, 6, 12, 14, 20], changes) == {3, 4, 10, 12, 18}, "unchanged lines only move"
    assert lines_at([4], changes) == {3, 4} and lines_at([13], changes) == {10, 11}, "changed ones: what stood there"
    assert lines_at([22], changes) == {21}


def test_each_changed_line_has_its_cheapest_test_before_any_has_two() -> None:
    known = build(
        "commit",
        [
            {"test": "dear", "cpu_s": 9.0, "lines": {"a.py": [1, 2, 3]}},
            {"test": "cheap", "cpu_s": 0.1, "lines": {"a.py": [1]}},
            {"test": "middle", "cpu_s": 0.5, "lines": {"a.py": [1, 2]}},
            {"test": "middle", "cpu_s": 0.5, "lines": {"a.py": [2]}},
        ],
    )
    assert choose(known, {"a.py": [1]}, budget_s=0.5) == ["cheap"]
    assert choose(known, {"a.py": [1, 2]}, budget_s=2) == ["cheap", "middle"]
    assert choose(known, {"a.py": [1, 2]}, budget_s=20) == ["cheap", "middle", "dear"]
    assert choose(known, {"a.py": [3]}, budget_s=1) == ["dear"], "one is run in any case"
    assert choose(known, {"a.py": [70], "new.py": [1]}, budget_s=1) == ["dear"], "the nearest line that a test runs"


def test_a_changed_test_is_run_by_its_name_and_a_changed_helper_with_its_file() -> None:
    source = "import a\n\n\n@mark\ndef test_a():\n    pass\n\n\ndef helper():\n    pass\n"
    assert changed_tests(source, [4]) == ["test_a"]
    assert changed_tests(source, [6, 7]) == ["test_a"], "an empty line is no change"
    assert changed_tests(source, [5, 9]) is None
