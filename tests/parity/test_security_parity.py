"""Security settings beside Kafka's own classes: defaults, what a login module's text means, bounds."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from mm2py.config.row import Status
from mm2py.config.security.jaas import MODULES, BadJaas, parse_jaas
from mm2py.config.security.keys import SECURITY
from mm2py.secret import Secret

SEED = int(os.environ.get("MM2PY_SEED", "20240717"))
PIECES = [
    *["username", "password", "a", "B9", "x.y", "a-b", "a_b", "$c", "required", "7", "-1", "1.5", "é"],
    *[
        "=",
        "=",
        "=",
        " ",
        " ",
        "\n",
        "\t",
        ";",
        '"',
        "'",
        '""',
        '"a b"',
        "'a b'",
        r'"a\"b"',
        r'"\n\t\\"',
        r'"\101\7\0"',
    ],
    *[r'"\400\x"', "//r\n", "/* r */", "/*", "/", "#", "{", ",", "\\", "\0", "\x1f", "\x7f", "\u2003"],
]


def test_the_defaults_are_kafkas(jvm: Any) -> None:
    kafka = jvm.jvm.org.apache.kafka
    definition = kafka.clients.admin.AdminClientConfig.configDef()
    defaults = definition.defaultValues()
    for key in SECURITY.values():
        if key.status is not Status.WORKS or key.name.endswith((".connect.timeout.ms", ".read.timeout.ms")):
            continue  # Kafka waits for a token server for ever
        theirs = defaults.get(key.name)
        wanted = tuple(theirs) if hasattr(theirs, "append") else theirs
        assert (key.default or None) == (wanted or None), key.name


@pytest.fixture
def java_reads(jvm: Any) -> Any:
    """Name and options of the one login module of a text; "refused" where Kafka does."""
    from py4j.protocol import Py4JJavaError

    java = jvm.jvm

    def read(text: str) -> Any:
        configs = java.java.util.HashMap()
        configs.put("sasl.jaas.config", java.org.apache.kafka.common.config.types.Password(text))
        try:
            context = java.org.apache.kafka.common.security.JaasContext.loadClientContext(configs)
        except Py4JJavaError:
            return "refused"
        (entry,) = context.configurationEntries()
        return entry.getLoginModuleName(), dict(entry.getOptions())

    return read


def ours(text: str) -> Any:
    try:
        module = parse_jaas(Secret(text))
    except BadJaas:
        return "refused"
    return module.name, {name: value.reveal() for name, value in module.options.items()}


def test_whatever_is_read_means_what_kafka_reads(java_reads: Any) -> None:
    """Some texts that Kafka reads are refused here, never the other way round, and none means anything else."""
    print(f"MM2PY_SEED={SEED}")
    chance = random.Random(SEED)
    read = 0
    for number in range(1500):
        options = "".join(chance.choices(PIECES, k=chance.randint(0, 9)))
        if number % 3:
            pairs = [
                f"{chance.choice(['username', 'password', 'a', 'x.y'])}{chance.choice(['=', ' = '])}{value}"
                for value in chance.sample([piece for piece in PIECES if piece not in (";", "=")], chance.randint(0, 3))
            ]
            options = chance.choice([" ", "\n", "\t // r\n"]).join(pairs)
        text = f"{chance.choice(MODULES)} {chance.choice(['required', 'OPTIONAL'])} {options};"
        mine = ours(text)
        if mine != "refused":
            read += 1
            assert mine == java_reads(text), repr(text)
    assert read > 200


@pytest.mark.parametrize(
    "options",
    [
        'username="anna" password="geheim"',
        "username='anna' password='a\"b'",
        "username=anna password=x.y",
        r'password="a\"b\\c\n\101\0\477"',
        'password="a;b=c // d /* e */"',
        'password="é \u2003 \U0001f600"',
        "a=b // remark\n c=d /* remark\n */ e=f",
        "",
    ],
)
def test_what_people_write_is_read_by_both(java_reads: Any, options: str) -> None:
    text = f"{MODULES[1]} required {options};"
    assert ours(text) == java_reads(text) != "refused"


def test_the_bounds_of_renewal_are_kafkas(jvm: Any) -> None:
    """The arithmetic is in a private method with a clock; here are the bounds of what goes into it."""
    from py4j.java_gateway import get_field

    definition = jvm.jvm.org.apache.kafka.clients.admin.AdminClientConfig.configDef()
    for name, low, high in [
        ("sasl.login.refresh.window.factor", 0.5, 1.0),
        ("sasl.login.refresh.window.jitter", 0.0, 0.25),
        ("sasl.login.refresh.min.period.seconds", 0, 900),
        ("sasl.login.refresh.buffer.seconds", 0, 3600),
    ]:
        for value, fine in [(low, True), (high, True), (low - 1, False), (high + 1, False)]:
            try:
                SECURITY[name].kind(str(value))
                accepted = True
            except ValueError:
                accepted = False
            bounds = get_field(definition.configKeys().get(name), "validator").toString()
            assert accepted is fine, name
            assert str(low) in bounds and str(high) in bounds, name
