"""``sasl.jaas.config``: three modules are known, nothing is loaded, no value is repeated (S10)."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.config.security import jaas
from mm2py.config.security.jaas import MODULES, OAUTHBEARER, PLAIN, SCRAM, BadJaas, parse_jaas
from mm2py.secret import Secret


def options(text: str) -> dict[str, str]:
    return {name: value.reveal() for name, value in parse_jaas(Secret(text)).options.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('username="anna" password="geheim"', {"username": "anna", "password": "geheim"}),
        ("username='anna' password='a\"b'", {"username": "anna", "password": 'a"b'}),
        ('username=anna  password="x";  // a remark', {"username": "anna", "password": "x"}),
        ('\n  username = "anna"\n  /* a remark */ password="x"\n', {"username": "anna", "password": "x"}),
        (r'password="a\"b\\c\n\101\0"', {"password": 'a"b\\c\nA\0'}),
        ('password="a;b=c // d"', {"password": "a;b=c // d"}),
        ('password=""', {"password": ""}),
        ('"username"="anna"', {"username": "anna"}),
        ("", {}),
    ],
)
def test_options_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    semicolon = "" if ";  //" in text else ";"
    assert options(f"{SCRAM} required {text}{semicolon}") == expected


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("flag", ["required", "REQUISITE", "sufficient", "Optional"])
def test_kafkas_own_modules_are_known(module: str, flag: str) -> None:
    assert parse_jaas(Secret(f"{module} {flag};")).name == module


HOSTILE = [
    "com.sun.security.auth.module.JndiLoginModule required user.provider.url=ldap://canary group.provider.url=x;",
    'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://canary/x";',
    'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://canary";',
    'com.ibm.security.auth.module.Krb5LoginModule required keyTab="/canary" principal="x";',
    'com.sun.security.auth.module.KeyStoreLoginModule required keyStoreURL="http://canary";',
    "com.sun.security.auth.module.UnixLoginModule required;",
    "com.sun.security.auth.module.NTLoginModule required;",
    'org.apache.kafka.common.security.plain.PlainLoginModule2 required username="canary";',
    'org.apache.kafka.common.security.plain.plainloginmodule required username="canary";',
    'PlainLoginModule required username="canary";',
    'os.system required command="canary";',
    'builtins.eval required x="canary";',
    'subprocess.Popen required args="canary";',
    '__import__("os").system("canary");',
    "mm2py.config.security.jaas required x=canary;",
    '"org.apache.kafka.common.security.plain.PlainLoginModule" required username="canary";',
    f'{PLAIN} required username="a"; com.sun.security.auth.module.JndiLoginModule required x="canary";',
    f'{PLAIN} required username="canary";;',
    f'{PLAIN} required username="canary"',
    f'{PLAIN} required username="canary',
    f"{PLAIN} required username=;",
    f'{PLAIN} required username "canary";',
    f'{PLAIN} required ="canary";',
    f'{PLAIN} required username="canary" username="canary";',
    f'{PLAIN} username="canary";',
    f'{PLAIN} forbidden username="canary";',
    f"{PLAIN}",
    f'{PLAIN} required {{"canary"}};',
    f"{PLAIN} required ${{canary}};",
    'required username="canary";',
    ";",
    "",
    "canary-canary-canary-canary-canary-canary",
    "\\u0000 canary",
    "// only a remark",
    "/* not closed canary",
    "ldap://canary",
    "../../etc/canary required;",
    f"{OAUTHBEARER}\0 required;canary",
    "x" * (jaas.TEXT_MAX_CHARS + 1),
    f'{PLAIN} required username="a" password=hunter canary;',
    f'{PLAIN} required username="a" password="abc"canary"more";',
    f"{PLAIN} required username=\"a\" password='it's_canary9';",
    f'{PLAIN} required username="a" password="Tr0ub4dor"-canary";',
    f'{PLAIN} required username="a" canary=x canary=y;',
    f'{PLAIN} required username="a" user_canary=x user_canary=y;',
    f"{OAUTHBEARER} required extension_canary;",
    f"{OAUTHBEARER} required ssl.canary;",
    f"{OAUTHBEARER} required unsecuredLoginCanary_canary;",
    "hunter.two.canary",
    "hunter.two.canary required;",
    "com.example.canary required;",
    "org.apache.canary required;",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_not_known_is_refused_without_repeating_a_value_or_loading_anything(text: str) -> None:
    loaded = set(sys.modules)
    with pytest.raises(BadJaas) as caught:
        parse_jaas(Secret(text))
    assert "canary" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert caught.value.__cause__ is None
    assert set(sys.modules) == loaded


@given(st.text(max_size=200))
def test_any_text_is_refused_or_read_and_never_anything_else(text: str) -> None:
    for whole in (text, f"{PLAIN} required {text};", f'{PLAIN} required password="{text}";'):
        try:
            module = parse_jaas(Secret(whole))
        except BadJaas:
            continue
        assert module.name in MODULES


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(max_size=30), max_size=4))
def test_every_value_can_be_written(wanted: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
        return "".join(escapes.get(char, char) for char in value)

    text = " ".join(f'{name}="{quoted(value)}"' for name, value in wanted.items())
    assert options(f"{PLAIN} required {text};") == wanted
