"""Secrets in other places: what ``${file:…}``, ``${dir:…}`` and ``${env:…}`` become, and that nobody sees it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.flow_properties import StoredConfigUnusable, properties_of_connector
from mm2py.config.references import Unresolved, resolve
from mm2py.config.settings import Configuration, FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow import parse_flow
from mm2py.kafka.security.settings import PasswordCredential
from mm2py.secret import HIDDEN

FLOW = parse_flow("A->B")
PACKAGE = "org.apache.kafka.common.config.provider"
CANARY = "canary-7f3a9c"
HEAD = f"""\
clusters = A, B
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
A->B.enabled = true
config.providers = file, dir, env
config.providers.file.class = {PACKAGE}.FileConfigProvider
config.providers.dir.class = {PACKAGE}.DirectoryConfigProvider
config.providers.env.class = {PACKAGE}.EnvVarConfigProvider
"""

Read = Callable[[str], SettingsFile]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> SettingsFile:
        path = tmp_path / "mm2.properties"
        path.write_text(HEAD + text)
        return read_settings_file(path, None)

    return read


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.properties"
    path.write_text(f"password = {CANARY}\nhost = kafka.example\numlaut = pässwörd\n", "utf-8")
    return path


def login(password: str) -> str:
    """Return the lines of a file by which its clients of A log in."""
    return f"""\
A.security.protocol = SASL_SSL
A.sasl.mechanism = PLAIN
A.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="mirror" password="{password}";
"""


def only(configuration: Configuration) -> FlowSettings:
    assert configuration.refused == {}
    (settings,) = configuration.flows
    return settings


def password_for(settings: FlowSettings) -> str:
    assert settings.source.security.sasl is not None
    credential = settings.source.security.sasl.credential
    assert isinstance(credential, PasswordCredential)
    return credential.password.reveal()


def problem(file: SettingsFile) -> str:
    with pytest.raises(ConfigError) as caught:
        file.configuration()
    assert CANARY not in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


# --- what a reference becomes -----------------------------------------------------------------------------------------


def test_a_password_may_stand_in_another_file_in_a_directory_or_in_the_environment(
    read: Read, secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").write_text("from a directory")
    monkeypatch.setenv("MM2PY_TEST_SECRET", "from the environment")
    for reference, password in (
        (f"${{file:{secrets}:password}}", CANARY),
        (f"${{file:{secrets}:umlaut}}", "pässwörd"),
        (f"${{dir:{tmp_path}:one}}", "from a directory"),
        ("${env:MM2PY_TEST_SECRET}", "from the environment"),
        (f"x-${{file:{secrets}:host}}-${{env:MM2PY_TEST_SECRET}}", "x-kafka.example-from the environment"),
    ):
        configuration = read(login(reference)).configuration()
        assert password_for(only(configuration)) == password
        assert configuration.warnings == ()


def test_addresses_paths_and_names_of_clients_may_be_references_too(
    read: Read, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MM2PY_TEST_POD", "pod-3")
    text = f"""A.bootstrap.servers = ${{file:{secrets}:host}}:9092
A.consumer.client.id = ${{env:MM2PY_TEST_POD}}
memory.max.bytes = 33554432
"""
    settings = only(read(text).configuration())
    assert settings.source.bootstrap_servers == (("kafka.example", 9092),)
    assert settings.source.client_id == "pod-3"


def answers(path: str, key: str) -> str:
    if key == "missing":
        raise Unresolved("there is none")
    return f"<{path}|{key}>"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", ""),
        ("plain", "plain"),
        ("${p:k}", "<|k>"),
        ("${p:/a/b:k}", "</a/b|k>"),
        ("${p:/a:b:k}", "</a|b:k>"),
        ("${p::k}", "<|k>"),
        ("${p:}", "<|>"),
        ("a${p:k}b${p:x:k}c", "a<|k>b<x|k>c"),
        ("$${p:k}", "$<|k>"),
        ("${p:k", "${p:k"),
        ("${p}", "${p}"),
        ("${}", "${}"),
        ("${ p:k}", "${ p:k}"),
        ("${q:k}", "${q:k}"),
        ("${q:${p:k}}", "${q:${p:k}}"),
        ("${p:${p:k}}", "<${p|k>}"),
        ("${a ${p:k}", "${a ${p:k}"),
        ("${a} ${p:k}", "${a} <|k>"),
        ("${p:two words}", "<|two words>"),
        ("{p:k}", "{p:k}"),
        ("$ {p:k}", "$ {p:k}"),
        ("\\${p:k}", "\\<|k>"),
        ("${p:a\nb:k}", "<a\nb|k>"),
        ("${q:k} ${p:k}", "${q:k} <|k>"),
    ],
)
def test_references_are_read_as_kafka_reads_them(text: str, result: str) -> None:
    """The same texts go through Kafka's own class in tests/parity/test_references_parity.py."""
    assert resolve(text, {"p": answers}).text.reveal() == result


def test_what_a_provider_answers_is_not_resolved_again() -> None:
    assert resolve("${p:k}", {"p": lambda path, key: "${p:other}"}).text.reveal() == "${p:other}"


def test_a_reference_to_a_provider_that_is_not_named_stays_and_is_told(read: Read) -> None:
    configuration = read(login("${vault:secret/kafka:password}")).configuration()
    assert password_for(only(configuration)) == "${vault:secret/kafka:password}"
    (warning,) = configuration.warnings
    assert warning.startswith("line 11: A.sasl.jaas.config holds a reference")


def test_providers_named_for_a_cluster_do_nothing_as_in_mirrormaker(read: Read) -> None:
    (warning,) = read("B.config.providers = vault\n").configuration().warnings
    assert "B.config.providers (config providers are named at the top of the file only)" in warning


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_each_reference_without_a_value_is_named_with_line_provider_file_and_key(read: Read, secrets: Path) -> None:
    text = f"""A.ssl.truststore.password = ${{file:{secrets}:absent}}
A.ssl.keystore.password = ${{file:/no/such/file:password}}
B.ssl.truststore.password = ${{env:MM2PY_TEST_ABSENT}}
B.ssl.keystore.password = ${{dir:{secrets.parent}:absent}}
B.ssl.key.password = ${{file:password}}
A.ssl.key.password = ${{env:/etc:HOME}}
"""
    said = problem(read(text))
    for expected in (
        f"line 9: A.ssl.truststore.password: provider file: {secrets} has no key 'absent'",
        "line 10: A.ssl.keystore.password: provider file: cannot read /no/such/file: No such file or directory",
        "line 11: B.ssl.truststore.password: provider env: the environment has no variable 'MM2PY_TEST_ABSENT'",
        f"line 12: B.ssl.keystore.password: provider dir: cannot read {secrets.parent}/absent: No such file",
        "line 13: B.ssl.key.password: provider file: the reference to 'password' names no file",
        "line 14: A.ssl.key.password: provider env: a variable of the environment has no path",
    ):
        assert expected in said


@pytest.mark.parametrize(
    "line",
    ["topics = ${env:HOME}", "A->B.replication.factor = ${nowhere:x}", "B.offset.storage.topic = x-${env:HOME}"],
)
def test_a_setting_that_workers_share_takes_no_reference(read: Read, line: str) -> None:
    """S07: the configs topic holds neither the value, nor a text that another worker would read otherwise."""
    key = line.partition(" =")[0]
    assert f"line 9: {key} holds a reference, ${{...}}, and all workers have to have the same value" in problem(
        read(line)
    )


def test_the_list_of_clusters_takes_no_reference(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text("clusters = ${env:HOME}\n")
    assert "line 1: clusters holds a reference" in problem(read_settings_file(path, None))


@pytest.mark.parametrize(
    "name",
    ["com.example.Vault", "FileConfigProvider", "os.system", "", "mm2py.config.providers.FileProvider"],
)
def test_a_provider_that_is_none_of_kafkas_three_is_refused_and_not_loaded(read: Read, name: str) -> None:
    """S10: there is a list of names, and no import by one."""
    said = problem(read(f"config.providers = x\nconfig.providers.x.class = {name}\n"))
    assert f"line 10: config.providers.x.class = {name!r} is no provider that mm2py has" in said


def test_a_provider_without_a_class_is_told(read: Read) -> None:
    said = problem(read("config.providers = x\n"))
    assert "line 9: config.providers names a provider without a class; write config.providers.x.class = " in said


def test_the_aliases_of_providers_are_free(read: Read, secrets: Path) -> None:
    text = f"config.providers = my secrets\nconfig.providers.my\\ secrets.class = {PACKAGE}.FileConfigProvider\n"
    reference = login(f"${{my secrets:{secrets}:password}}")
    assert password_for(only(read(text + reference).configuration())) == CANARY


# --- what may be read -------------------------------------------------------------------------------------------------


@pytest.fixture
def read_below(read: Read, tmp_path: Path) -> Callable[[str], SettingsFile]:
    """A password by a reference, where only ``tmp_path/allowed`` may be read."""
    (tmp_path / "allowed").mkdir()

    def read_below(reference: str) -> SettingsFile:
        allowed = "".join(
            f"config.providers.{name}.param.allowed.paths = {tmp_path}/allowed\n" for name in ("file", "dir")
        )
        return read(allowed + login(reference))

    return read_below


@pytest.mark.parametrize(
    "reference",
    [
        "${file:/etc/passwd:root}",
        "${file:<allowed>/../secrets.properties:password}",
        "${file:<allowed>/link:password}",
        "${file:<allowed>/out/secrets.properties:password}",
        "${file:<allowed>-not/secrets.properties:password}",
        "${file:/proc/self/environ:HOME}",
        "${file:/dev/zero:x}",
        "${dir:/etc:passwd}",
        "${dir:<allowed>:link}",
        "${dir:<allowed>/..:secrets.properties}",
    ],
)
def test_what_is_not_within_allowed_paths_is_not_read(
    read_below: Read, tmp_path: Path, secrets: Path, reference: str
) -> None:
    """S08: a traversal, or a link that leads out."""
    allowed = tmp_path / "allowed"
    (allowed / "link").symlink_to(secrets)
    (allowed / "out").symlink_to(tmp_path)
    (tmp_path / "allowed-not").symlink_to(tmp_path)
    assert "is not within allowed.paths" in problem(read_below(reference.replace("<allowed>", str(allowed))))


def test_a_secret_that_kubernetes_mounts_is_read_through_its_links(read_below: Read, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    (allowed / "..2026_11_23").mkdir()
    (allowed / "..2026_11_23" / "password").write_text(CANARY)
    (allowed / "..data").symlink_to("..2026_11_23")
    (allowed / "password").symlink_to("..data/password")
    assert password_for(only(read_below(f"${{dir:{allowed}:password}}").configuration())) == CANARY


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fifo", "is not a plain file"),
        ("folder", "Is a directory"),
        ("large", "is larger than 1,048,576 bytes"),
        ("binary", "is not text in UTF-8"),
        ("a/b", "is no name of a file"),
        ("..", "is no name of a file"),
    ],
)
def test_what_is_no_small_text_file_is_refused(read_below: Read, tmp_path: Path, name: str, why: str) -> None:
    """S08: a FIFO would wait for ever, and a file of a gigabyte fill the memory."""
    allowed = tmp_path / "allowed"
    os.mkfifo(allowed / "fifo")
    (allowed / "folder").mkdir()
    (allowed / "binary").write_bytes(b"\xff\xfe\xfd")
    with (allowed / "large").open("wb") as file:
        file.truncate(1 << 30)
    assert why in problem(read_below(f"${{dir:{allowed}:{name}}}"))


def test_a_device_is_refused_where_everything_may_be_read(read: Read) -> None:
    assert "/dev/zero is not a plain file" in problem(read(login("${file:/dev/zero:x}")))


def test_a_file_that_is_no_properties_file_is_refused_without_its_content(read: Read, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text(f"password = \\u{CANARY}\n")
    said = problem(read(login(f"${{file:{tmp_path}/bad:password}}")))
    assert f"{tmp_path}/bad is no properties file: The entry of line 1 has \\u without four" in said


@pytest.mark.parametrize("paths", ["relative", "/no/such/directory", "/etc,", "/etc, etc"])
def test_allowed_paths_are_absolute_and_there(read: Read, paths: str) -> None:
    said = problem(read(f"config.providers.file.param.allowed.paths = {paths}\n"))
    assert "line 9: config.providers.file.param.allowed.paths" in said
    assert "is not a list of absolute paths that exist" in said


def test_only_variables_that_the_pattern_matches_may_be_read(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MM2PY_TEST_SECRET", "from the environment")
    allowlist = "config.providers.env.param.allowlist.pattern = {}\n"
    lines = login("${env:MM2PY_TEST_SECRET}")
    assert password_for(only(read(allowlist.format("MM2PY_.*") + lines).configuration())) == "from the environment"
    assert "allowlist.pattern does not allow 'MM2PY_TEST_SECRET'" in problem(read(allowlist.format("MM2PY_") + lines))
    assert "is not a pattern that mm2py has" in problem(read(allowlist.format("(") + lines))


# --- what is seen of it -----------------------------------------------------------------------------------------------


def test_nothing_shows_what_a_provider_has_given(read: Read, secrets: Path) -> None:
    """S05, S06: not the settings, not what is read of the file, and not a message about a wrong value."""
    file = read(login(f"${{file:{secrets}:password}}"))
    configuration = file.configuration()
    assert password_for(only(configuration)) == CANARY
    assert CANARY not in repr((file, file.properties, list(file.properties.entries.values()), configuration))
    reference = f"${{file:{secrets}:password}}"
    for key in ("A.security.protocol", "A.sasl.mechanism", "A.consumer.request.timeout.ms", "A.bootstrap.servers"):
        wrong = read(f"{key} = {reference}\n")
        told = str(wrong.configuration().refused) if key == "A.sasl.mechanism" else problem(wrong)
        assert CANARY not in told


def test_a_message_about_a_wrong_value_shows_the_reference(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "A.security.protocol = ${env:MM2PY_TEST}\n"
    monkeypatch.setenv("MM2PY_TEST", CANARY)
    assert "line 9: A.security.protocol = '${env:MM2PY_TEST}' is not one of PLAINTEXT, SSL" in problem(read(text))


def test_a_credential_that_gets_into_a_longer_text_is_hidden_there(read: Read, secrets: Path) -> None:
    """S09: Connect 2.0 to 2.3.0 hid the value of a reference, but not where it was a part of a longer value.

    Here an operator has put the password into an address, too, whose path a refusal names.
    """
    (secrets.parent / f"{CANARY}.jks").write_bytes(b"\xfe\xed\xfe\xed")
    reference = f"${{file:{secrets}:password}}"
    text = f"""A.security.protocol = SSL
A.ssl.truststore.password = {reference}
A.ssl.truststore.location = {secrets.parent}/{reference}.jks
"""
    configuration = read(text).configuration()
    (refused,) = map(str, configuration.refused.values())
    assert "format, JKS" in refused and CANARY not in refused
    assert f"{secrets.parent}/{HIDDEN}.jks" in refused


def test_workers_share_neither_references_nor_what_they_stand_for(read: Read, secrets: Path) -> None:
    """S07."""
    file = read(login(f"${{file:{secrets}:password}}") + "topics = orders\n")
    assert file.shared(FLOW) == {"enabled": "true", "topics": "orders"}


def test_a_stored_reference_is_refused_and_never_resolved(read: Read, secrets: Path) -> None:
    """S08: who may write to the topic, or use REST, could otherwise read files of every worker."""
    file = read("")
    for name in ("topics", "source.consumer.fetch.max.bytes", "replication.policy.separator"):
        with pytest.raises(StoredConfigUnusable, match=re.escape(f"{name} holds a reference to a config provider")):
            file.configuration({FLOW: {name: f"x${{file:{secrets}:password}}"}})


def test_stored_addresses_and_credentials_are_not_looked_at(read: Read, secrets: Path) -> None:
    stored = {"source.cluster.bootstrap.servers": f"${{file:{secrets}:password}}:1", "sasl.jaas.config": "${env:HOME}"}
    assert properties_of_connector(stored) == {"enabled": "true"}
    settings = only(read("").configuration({FLOW: stored}))
    assert settings.source.bootstrap_servers == (("a", 1),)


def test_a_worker_goes_by_what_its_providers_had_when_it_started(read: Read, secrets: Path) -> None:
    """The story: a secret is rotated, or unmounted, while a setting of a flow is changed: nothing else changes then."""
    file = read(login(f"${{file:{secrets}:password}}"))
    secrets.unlink()
    changed: Any = file.configuration({FLOW: {"topics": "orders"}})
    assert password_for(only(changed)) == CANARY
