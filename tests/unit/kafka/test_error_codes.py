"""There is one table of error codes: its numbers are Kafka's, and no other module writes one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kio.schema.errors import ErrorCode

from mm2py.kafka import error_codes

ROOT = Path(__file__).parents[3]
KAFKAS = {code.name.upper(): int(code) for code in ErrorCode}


def test_every_code_has_kafkas_name_and_number() -> None:
    ours = {name: value for name, value in vars(error_codes).items() if isinstance(value, int)}
    assert ours
    assert ours == {name: KAFKAS[name] for name in ours}
    assert all(error_codes.name_of(value) == name for name, value in ours.items())


def test_no_other_module_writes_a_bare_error_code() -> None:
    written = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for package in ("mm2py", "connectors")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != Path(error_codes.__file__)
        for line, text in bare_codes(path.read_text())
    ]
    assert not written


def test_bare_codes_are_found() -> None:
    source = """
_UNKNOWN_TOPIC_OR_PARTITION: Final = 3
if error.code == 36 or answer.error_code in {14, 15}: pass
code = topic.error_code or 5
raise BrokerRefused("Waiting", 5)
"""
    assert sorted(line for line, _ in bare_codes(source)) == [2, 3, 3, 4, 5]


def bare_codes(source: str) -> Iterator[tuple[int, str]]:
    """Yield where a module defines, compares or passes an error code as a number, as far as names tell."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int()))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int()))
            ) if name.lstrip("_") in KAFKAS.keys() - {"NONE"}:
                yield node.lineno, ast.unparse(node)
            case ast.Compare(left=left) if _is_code(left) and any(map(_numbers, node.comparators)):
                yield node.lineno, ast.unparse(node)
            case ast.BoolOp(op=ast.Or(), values=[first, *_, last]) if _is_code(first) and _numbers(last):
                yield node.lineno, ast.unparse(node)
            case ast.Call(func=ast.Name(id="BrokerRefused"), args=[_, code, *_]) if _numbers(code):
                yield node.lineno, ast.unparse(node)


def _is_code(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.endswith("code")
    return False


def _numbers(node: ast.expr) -> list[int]:
    """Return the numbers in an expression; 0 is no error."""
    constants = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return [value for value in constants if type(value) is int and value]
