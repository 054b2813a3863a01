"""``--where`` and ``--select`` of a backfill: which expressions are allowed, and the DataFrame that applies them.

Records keep their order, their timestamps and their partition, and every attempt of a task must see the same ones. So
only a filter and a projection are allowed, of expressions that give the same result for the same record at any time.
``why_not`` checks this on the plan that Spark makes of the expressions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mm2py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGEABLE: Final = ("key", "value", "headers")
"""The columns that ``--select`` may make. Columns that it does not name stay as they are."""
_KEPT: Final = ("topic", "partition", "offset", "timestamp")
_BYTES: Final = ("binary", "string")
_HEADERS: Final = ("array<struct<key:string,value:binary>>", "array<struct<key:string,value:string>>")
_TYPES: Final = {"key": _BYTES, "value": _BYTES, "headers": _HEADERS}
_ALLOWED_NODES: Final = frozenset({"Project", "Filter", "SubqueryAlias", "View"})
_OF_THE_MOMENT: Final = frozenset({"now", "localtimestamp", "user", "session_user", "curdate"})
_RANDOM: Final = frozenset({"aes_encrypt"})
"""Spark calls also these functions deterministic, though they are not."""
SESSION_SETTINGS: Final = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
"""Expressions mean the same on every driver: times as text, and a cast that fails is an error."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """What a backfill keeps of its records, as SQL. Empty texts: all of them, as they are."""

    where: str = ""
    select: str = ""

    def __bool__(self) -> bool:
        return bool(self.where or self.select)

    @property
    def text(self) -> str:
        """As it is written on the command line."""
        parts = [f"--{name} {value!r}" for name, value in (("where", self.where), ("select", self.select)) if value]
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of Spark's analysed plan, as far as it matters here."""

    name: str
    calls: tuple[tuple[str, bool], ...] = ()
    """Of its expressions: name, and whether it gives the same result for the same row."""
    has_subqueries: bool = False
    children: tuple[PlanNode, ...] = ()


def why_not(plan: PlanNode) -> str | None:
    """Return why a plan is more than a filter and a projection of single records; None: it is not more."""
    if not plan.children:
        return None
    if plan.name not in _ALLOWED_NODES:
        return f"it needs more than one record at a time, or makes several of one ({plan.name})"
    if plan.has_subqueries:
        return "it has a subquery"
    for name, is_deterministic in plan.calls:
        if not is_deterministic or name in _RANDOM:
            return f"{name}() gives something else each time, so a second attempt of a task would see other records"
        if name in _OF_THE_MOMENT or name.startswith("current_"):
            return f"{name}() depends on when or by whom it is run: write the value itself"
        if name.endswith(("udf", "udaf")):
            return f"{name} is a function that is not of Spark's own"
    return next(filter(None, map(why_not, plan.children)), None)


def applied(spark: SparkSession, history: DataFrame, expressions: Expressions) -> DataFrame:
    """Return the frame of the kept records: topic, partition, offset, timestamp, key, value, headers.

    Raises:
        ConfigError: an expression is wrong, or more than a filter and a projection. The error names the option.
    """
    frame = history
    if expressions.where:
        frame = _checked("--where", lambda: history.where(expressions.where))
        plan = _asked("--where", lambda: frame._jdf.queryExecution().optimizedPlan().nodeName())
        if plan in {"LocalRelation", "EmptyRelation"}:
            raise _refused("--where", "it is never true")
    if not expressions.select:
        return frame.select(*_KEPT, *CHANGEABLE)
    chosen = _selected(spark, expressions.select, frame, ())
    _check_columns({field.name: field.dataType.simpleString() for field in chosen.schema.fields}, len(chosen.columns))
    kept = [name for name in (*_KEPT, *CHANGEABLE) if name not in chosen.columns]
    whole = _selected(spark, expressions.select, frame, kept)
    return whole.select(*_KEPT, *CHANGEABLE)


def _selected(spark: SparkSession, text: str, frame: DataFrame, kept: Sequence[str]) -> DataFrame:
    """Return a frame of the kept columns, and after them the columns of a list of expressions."""
    names = "".join(f"{name}, " for name in kept)
    text = text.replace("{", "{{").replace("}", "}}")  # PySpark formats the query
    query = f"SELECT {names}{text}\nFROM {{history}}"
    return _checked("--select", lambda: spark.sql(query, history=frame))


def _check_columns(types: dict[str, str], count: int) -> None:
    if len(types) < count:
        raise _refused("--select", "it names a column twice")
    for name, kind in types.items():
        if name not in CHANGEABLE:
            raise _refused(
                "--select",
                f"it makes a column {name!r}",
                remedy=f"It may make {', '.join(CHANGEABLE)}, in lower case: upper(CAST(value AS STRING)) AS value, for"
                " example. What it does not name stays as it is.",
            )
        if kind not in _TYPES[name]:
            allowed = " or ".join(_TYPES[name])
            raise _refused("--select", f"its {name} is of type {kind}", remedy=f"Make it {allowed}.")


def _checked(option: str, make: Callable[[], DataFrame]) -> DataFrame:
    frame = _asked(option, make)
    if (why := why_not(_node(frame._jdf.queryExecution().analyzed()))) is not None:
        raise _refused(option, why)
    return frame


def _asked(option: str, ask: Callable[[], Any]) -> Any:
    from pyspark.errors import PySparkException  # noqa: PLC0415  (an extra)

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # the error says all that it would
    try:
        return ask()
    except PySparkException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise _refused(option, lines[0] if lines else type(error).__name__) from error


def _refused(
    option: str, why: str, *, remedy: str = "It may only choose and change single records: see docs/backfill.md."
) -> ConfigError:
    return ConfigError(f"{option} cannot be used: {why.rstrip('.')}.", remedy=remedy)


def _node(plan: Any) -> PlanNode:
    """Read a plan of the JVM."""
    calls = tuple(call for one in _each(plan.expressions()) for call in _calls(one))
    children = tuple(map(_node, _each(plan.children())))
    return PlanNode(plan.nodeName(), calls, plan.subqueries().length() > 0, children)


def _calls(expression: Any) -> Iterator[tuple[str, bool]]:
    for child in _each(expression.children()):  # the inner ones first: they are the cause
        yield from _calls(child)
    yield expression.prettyName().lower(), expression.deterministic()


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(at) for at in range(sequence.length()))
