"""What transforms do to records, as Connect documents it; the expected results were seen with the classes of 4.3.1."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mm2py.records.batch import Record
from mm2py.topics.filters import PatternTooSlow
from mm2py.transforms.chain import TopicChain, UserFunction
from mm2py.transforms.reading import TransformsUnusable, read_chain

CONNECT = "org.apache.kafka.connect.transforms."
INSERT = {"transforms": "i", "transforms.i.type": f"{CONNECT}InsertHeader", "transforms.i.header": "site"}
FILTER = {"transforms": "f", "transforms.f.type": f"{CONNECT}Filter", "transforms.f.predicate": "p", "predicates": "p"}
TOMBSTONE = {"predicates.p.type": f"{CONNECT}predicates.RecordIsTombstone"}
HAS_KEY = {"predicates.p.type": f"{CONNECT}predicates.HasHeaderKey", "predicates.p.name": "a"}
NAME = {"predicates.p.type": f"{CONNECT}predicates.TopicNameMatches", "predicates.p.pattern": ".*orders"}


def record(value: bytes | None = b"v", headers: tuple[tuple[str, bytes | None], ...] = (), offset: int = 0) -> Record:
    return Record(offset, 5, b"k", value, headers)


def chain_of(settings: dict[str, str], topic: str = "A.orders") -> TopicChain | None:
    chain = read_chain(settings)
    assert chain is not None
    return chain.for_topic(topic)


def applied(settings: dict[str, str], given: Record, topic: str = "A.orders") -> Record | None:
    found = chain_of(settings, topic)
    if found is None:
        return given
    (result,) = found.apply([given], topic=topic, partition=0)
    return result


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("abc", b"abc"),
        (" x ", b"x"),
        ("", b""),
        ("42", b"42"),
        ("true", b"true"),
        ('{"a":1}', b'{"a":1}'),
        ("null", None),
        ("é", "é".encode()),
    ],
)
def test_insert_header_adds_the_text_behind_the_headers_that_are_there(literal: str, value: bytes | None) -> None:
    given = record(headers=(("site", b"1"),))
    found = applied({**INSERT, "transforms.i.value.literal": literal}, given)
    assert found == given._replace(headers=(("site", b"1"), ("site", value)))


@pytest.mark.parametrize(
    ("names", "left"),
    [("a , c", ["b"]), ("A", ["a", "b", "a"]), ("b", ["a", "a"]), ("a,b", [])],
)
def test_drop_headers_removes_all_headers_of_its_names(names: str, left: list[str]) -> None:
    settings = {"transforms": "d", "transforms.d.type": "DropHeaders", "transforms.d.headers": names}
    found = applied(settings, record(headers=(("a", b"1"), ("b", None), ("a", b"3"))))
    assert found is not None and [name for name, _ in found.headers] == left


@pytest.mark.parametrize(
    ("predicate", "given", "topic", "is_true"),
    [
        (TOMBSTONE, record(None), "A.orders", True),
        (TOMBSTONE, record(b""), "A.orders", False),
        (HAS_KEY, record(headers=(("a", None),)), "A.orders", True),
        (HAS_KEY, record(headers=(("b", b"1"),)), "A.orders", False),
        (NAME, record(), "A.orders", True),
        (NAME, record(), "A.orders.x", False),
        ({**NAME, "predicates.p.pattern": "orders"}, record(), "A.orders", False),
    ],
)
@pytest.mark.parametrize("negate", [None, "false", "TRUE"])
def test_a_filter_drops_what_its_predicate_says(
    predicate: dict[str, str], given: Record, topic: str, is_true: bool, negate: str | None
) -> None:
    settings = {**FILTER, **predicate} | ({} if negate is None else {"transforms.f.negate": negate})
    kept = is_true is (negate == "TRUE")
    assert applied(settings, given, topic) == (given if kept else None)


def test_transforms_run_in_the_order_of_the_list() -> None:
    settings = {
        **INSERT,
        **FILTER,
        "transforms": "f,i",
        **HAS_KEY,
        "predicates.p.name": "site",
        "transforms.i.value.literal": "1",
    }
    assert applied(settings, record()) == record(headers=(("site", b"1"),))
    assert applied({**settings, "transforms": "i,f"}, record()) is None


def test_a_topic_that_no_predicate_names_is_copied_as_it_is() -> None:
    assert chain_of({**FILTER, **NAME}, "A.audit") is None
    assert chain_of({**FILTER, **NAME, "transforms.f.negate": "true"}, "A.audit") is not None


def test_the_digest_says_what_a_chain_does_and_not_how_it_is_called() -> None:
    one = chain_of({**INSERT, "transforms.i.value.literal": "1"})
    renamed = chain_of(
        {
            "transforms": "x",
            "transforms.x.type": "InsertHeader",
            "transforms.x.header": "site",
            "transforms.x.value.literal": "1",
        }
    )
    other = chain_of({**INSERT, "transforms.i.value.literal": "2"})
    assert one is not None and renamed is not None and other is not None
    assert one.digest == renamed.digest != other.digest
    straight, negated = chain_of({**FILTER, **HAS_KEY}), chain_of({**FILTER, **HAS_KEY, "transforms.f.negate": "true"})
    assert straight is not None and negated is not None and straight.digest != negated.digest


def test_the_digest_of_a_user_function_follows_the_source_of_its_module(tmp_path: Path) -> None:
    module = tmp_path / "mask.py"
    settings = {
        "transforms": "u",
        "transforms.u.type": "python",
        "transforms.u.module": str(module),
        "transforms.u.function": "mask",
    }
    digests = []
    for source in (b"def mask(record): return record\n", b"def mask(record): return None\n"):
        module.write_bytes(source)
        found = chain_of(settings)
        assert found is not None and isinstance(found.steps[0].change, UserFunction)
        assert found.steps[0].change.source_sha256 == hashlib.sha256(source).hexdigest()
        digests.append(found.digest)
    assert digests[0] != digests[1]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"transforms": "x"}, "transforms.x.type is missing"),
        ({"transforms": "x,x"}, "transforms is a list that names 'x' twice"),
        ({**INSERT}, "transforms.i.value.literal is missing"),
        ({**INSERT, "transforms.i.value.literal": "1", "transforms.i.headr": "y"}, "transforms.i.headr is not known"),
        ({**INSERT, "transforms.i.value.literal": "1", "transforms.i.negate": "true"}, "there is no predicate"),
        ({**FILTER, **TOMBSTONE, "transforms.f.predicate": "q"}, "transforms.f.predicate names 'q'"),
        ({"transforms": "f", "transforms.f.type": "Filter"}, "this Filter would drop every record"),
        ({**FILTER, **NAME, "predicates.p.pattern": "("}, "predicates.p.pattern cannot be used"),
        ({**FILTER, **NAME, "predicates.p.pattern": ""}, "predicates.p.pattern is empty"),
        ({**FILTER, "predicates.p.type": "com.example.Mine"}, "predicates.p.type is none of"),
        ({"transforms": "d", "transforms.d.type": "DropHeaders", "transforms.d.headers": ""}, "headers is empty"),
        ({"transforms": "h", "transforms.h.type": f"{CONNECT}HeaderFrom$Value"}, "records are copied as bytes"),
        ({"transforms": "m", "transforms.m.type": f"{CONNECT}MaskField$Value"}, "records are copied as bytes"),
        (
            {"transforms": "r", "transforms.r.type": f"{CONNECT}RegexRouter"},
            "it works alone only",
        ),
        ({"transforms": "t", "transforms.t.type": f"{CONNECT}TimestampRouter"}, "would depend on the time of each"),
        ({"transforms": "j", "transforms.j.type": "com.example.Mine"}, "write it as a Python function"),
        (
            {
                "transforms": "u",
                "transforms.u.type": "python",
                "transforms.u.module": "m.py",
                "transforms.u.function": "f",
            },
            "transforms.u.module is no absolute path",
        ),
        (
            {
                "transforms": "u",
                "transforms.u.type": "python",
                "transforms.u.module": "/no/m.py",
                "transforms.u.function": "f",
            },
            "transforms.u.module cannot be read: No such file",
        ),
    ],
)
def test_what_mm2py_does_not_do_is_refused_by_name(settings: dict[str, str], told: str) -> None:
    with pytest.raises(TransformsUnusable) as caught:
        read_chain(settings)
    assert told in str(caught.value)


def test_no_transforms_are_no_chain() -> None:
    assert read_chain({"transforms": "", "predicates": ""}) is None
    assert read_chain({"topics": "a"}) is None


def test_a_predicate_that_finds_no_answer_is_named_and_not_guessed() -> None:
    with pytest.raises(PatternTooSlow, match="pattern = "):
        chain_of({**FILTER, **NAME, "predicates.p.pattern": "(a|aa)+b?c"}, "a" * 200)
