"""References to config providers are those of Kafka's own classes: the same texts, the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mm2py.config.properties import PropertyEntry
from mm2py.config.providers import read_providers
from mm2py.config.references import Unresolved, resolve

PACKAGE = "org.apache.kafka.common.config.provider"
SECRETS = b"""k = value
empty =
with\\ blank = x
\\u00e4 = escaped
utf = \xc3\xa4\xe2\x82\xac
twice = 1
twice = 2
ref = ${p:k}
"""
FILES = {"secrets.properties": SECRETS, "k": b"from a file\n", "utf": b"\xc3\xa4", "empty": b""}
TEXTS = [
    "",
    "plain",
    "${p:<path>:k}",
    "${p:<path>:empty}|",
    "${p:<path>:with blank}",
    "${p:<path>:utf}",
    "${p:<path>:twice}",
    "${p:<path>:ref}",
    "${p:<path>:ä}",
    "a${p:<path>:k}b${p:<path>:utf}c",
    "$${p:<path>:k}",
    "\\${p:<path>:k}",
    "${p:<path>:k",
    "${p}",
    "${}",
    "${:}",
    "${ p:<path>:k}",
    "${q:<path>:k}",
    "${q:k} ${p:<path>:k}",
    "${q:${p:<path>:k}}",
    "${a ${p:<path>:k}",
    "${a} ${p:<path>:k}",
    "${a\n} ${p:<path>:k}",
    "{p:<path>:k}",
    "$ {p:<path>:k}",
    "${p:<path>:k}}",
    "${${p:<path>:k}",
    "${e:MM2PY_TEST}",
    "${e::MM2PY_TEST}",
    "${e:MM2PY_TEST}${p:<path>:k}${e:MM2PY_TEST}",
]
MISSING = [
    "${p:<path>:absent}",
    "${p:k}",
    "${p:}",
    "${p:<path>:}",
    "${e:ABSENT}",
    "${p:${p:<path>:k}}",
    "${p:<path>:a:b}",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("providers")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return folder


def java_result(jvm: Any, text: str, class_name: str, folder: Path, pattern: str) -> str:
    """Return what Kafka makes of a text; ``p`` is a provider of files or a directory, ``e`` of the environment."""
    java = jvm.jvm
    files = getattr(java.org.apache.kafka.common.config.provider, class_name)()
    parameters = java.java.util.HashMap()
    parameters.put("allowed.paths", str(folder))
    files.configure(parameters)
    variables = java.java.util.HashMap()
    variables.put("MM2PY_TEST", "from the environment")
    environment = java.org.apache.kafka.common.config.provider.EnvVarConfigProvider(variables)
    parameters = java.java.util.HashMap()
    parameters.put("allowlist.pattern", pattern)
    environment.configure(parameters)
    providers = java.java.util.HashMap()
    providers.put("p", files)
    providers.put("e", environment)
    configs = java.java.util.HashMap()
    configs.put("key", text)
    found: str = java.org.apache.kafka.common.config.ConfigTransformer(providers).transform(configs).data().get("key")
    return found


def our_result(text: str, class_name: str, folder: Path, pattern: str) -> str:
    problems: list[str] = []
    file = {
        "config.providers": "p,e",
        "config.providers.p.class": f"{PACKAGE}.{class_name}",
        "config.providers.p.param.allowed.paths": str(folder),
        "config.providers.e.class": f"{PACKAGE}.EnvVarConfigProvider",
        "config.providers.e.param.allowlist.pattern": pattern,
    }
    entries = {key: PropertyEntry(value, key, 1) for key, value in file.items()}
    providers = read_providers(entries, {"MM2PY_TEST": "from the environment"}, problems)
    assert problems == []
    return resolve(text, providers).text.reveal()


@pytest.mark.parametrize(
    ("class_name", "path"), [("FileConfigProvider", "/secrets.properties"), ("DirectoryConfigProvider", "")]
)
def test_a_text_becomes_what_kafka_makes_of_it(jvm: Any, folder: Path, class_name: str, path: str) -> None:
    compared = 0
    for template in TEXTS:
        text = template.replace("<path>", f"{folder}{path}")
        theirs = java_result(jvm, text, class_name, folder, "MM2PY_.*")
        try:
            ours = our_result(text, class_name, folder, "MM2PY_.*")
        except Unresolved:  # no such key
            ours = text
            assert path == ""
        else:
            compared += 1
        assert ours == theirs, text
    assert compared >= 24


@pytest.mark.parametrize("class_name", ["FileConfigProvider", "DirectoryConfigProvider"])
def test_where_kafka_leaves_a_reference_without_a_value_there_is_an_error_here(
    jvm: Any, folder: Path, class_name: str
) -> None:
    path = str(folder) if class_name == "DirectoryConfigProvider" else f"{folder}/secrets.properties"
    for template in MISSING:
        text = template.replace("<path>", path)
        assert java_result(jvm, text, class_name, folder, ".*") == text
        with pytest.raises(Unresolved):
            our_result(text, class_name, folder, ".*")


@pytest.mark.parametrize(
    "pattern", [".*", "MM2PY_.*", "MM2PY", "TEST", "^MM2PY_TEST$", "^TEST", "mm2py", "(?i:mm2py)", ""]
)
def test_the_same_variables_of_the_environment_may_be_read(jvm: Any, folder: Path, pattern: str) -> None:
    text = "${e:MM2PY_TEST}"
    theirs = java_result(jvm, text, "FileConfigProvider", folder, pattern)
    try:
        assert our_result(text, "FileConfigProvider", folder, pattern) == theirs
    except Unresolved:
        assert theirs == text


@pytest.mark.parametrize(
    ("place", "is_read"), [("<path>/secrets.properties", True), ("<path>/../x", False), ("<path>x/y", False)]
)
def test_the_same_files_are_within_allowed_paths(jvm: Any, folder: Path, place: str, is_read: bool) -> None:
    """Where Kafka does not look at links, mm2py does: see tests/unit/config/test_providers.py."""
    text = f"${{p:{place.replace('<path>', str(folder))}:k}}"
    theirs = java_result(jvm, text, "FileConfigProvider", folder, ".*")
    assert (theirs != text) is is_read
    if is_read:
        assert our_result(text, "FileConfigProvider", folder, ".*") == theirs
    else:
        with pytest.raises(Unresolved, match=r"allowed\.paths"):
            our_result(text, "FileConfigProvider", folder, ".*")
