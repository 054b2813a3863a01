"""The credentials of recoveries and the commands that a file names: what counts, and what is never shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file
from mm2py.config.effective_settings import effective_settings
from mm2py.config.recovery import CredentialsUnusable, recovery_hooks, recovery_security
from mm2py.dr.credentials import as_recovery, recovery_users
from mm2py.dr.fence.choosing import own_principals
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, parse_flow
from mm2py.kafka.security.settings import PasswordCredential

A, B = ClusterAlias("A"), ClusterAlias("B")
FLOW = parse_flow("A->B")
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="canary-{}";'
FILE = f"""
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
security.protocol = SASL_PLAINTEXT
sasl.mechanism = SCRAM-SHA-256
sasl.jaas.config = {SCRAM.format("mirror", "flow")}
"""
OF_A = f"A.dr.sasl.jaas.config = {SCRAM.format('boss', 'dr')}\n"
Read = Callable[[str], SettingsFile]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def made(more: str) -> SettingsFile:
        path = tmp_path / "mm2.properties"
        path.write_text(FILE + more)
        return read_settings_file(path, None)

    return made


def test_a_recovery_connects_with_its_own_credentials_where_the_file_has_some(read: Read) -> None:
    file = read(OF_A)
    settings = flow_of(file, "A->B")
    of_recovery = as_recovery(file, settings)
    found = of_recovery.source.security.sasl
    assert found is not None and isinstance(found.credential, PasswordCredential)
    assert (found.credential.username, found.mechanism) == ("boss", "SCRAM-SHA-256"), "the rest is the flow's"
    assert of_recovery.target == settings.target
    assert [one.text for one in recovery_users(file, settings)] == [
        "connects to A as User:boss (A.dr.*)",
        "connects to B as User:mirror (the flow's credentials)",
    ]
    assert recovery_security(file.properties.entries, parse_flow("B->A"), A) == of_recovery.source.security


def test_without_credentials_a_recovery_connects_as_the_flow(read: Read) -> None:
    file = read("A.dr.no.such = x\n")
    settings = flow_of(file, "A->B")
    assert as_recovery(file, settings) == settings
    assert recovery_security(file.properties.entries, FLOW, A) is None, "an unknown key is no credential"
    assert any("A.dr.no.such is not known" in one for one in file.configuration().warnings)


def test_a_recovery_never_falls_back_to_other_credentials(read: Read) -> None:
    file = read("A.dr.sasl.mechanism = PLAIN\n")
    with pytest.raises(CredentialsUnusable, match=r"Recoveries cannot connect to A: .*Correct A\.dr\.\*") as refused:
        as_recovery(file, flow_of(file, "A->B"))
    assert "canary" not in str(refused.value)


def test_a_wrong_value_is_a_problem_of_the_file(read: Read) -> None:
    with pytest.raises(ConfigError, match=r"A\.dr\.security\.protocol = 'NONE' is not one of"):
        read("A.dr.security.protocol = NONE\n").configuration()


def test_the_fence_leaves_the_user_of_recoveries_free(read: Read) -> None:
    assert own_principals(read(""), A) == {"User:mirror"}
    assert own_principals(read(OF_A), A) == {"User:mirror", "User:boss"}


def test_a_file_names_commands_by_words_without_a_shell(read: Read) -> None:
    file = read("dr.hook.dns = /opt/dns 'two words' $HOME\ndr.hook.proxy = curl -H token\n")
    hooks = recovery_hooks(file.properties.entries)
    assert hooks == {"dns": ("/opt/dns", "two words", "$HOME"), "proxy": ("curl", "-H", "token")}


@pytest.mark.parametrize(
    ("text", "why"), [("'open canary", "no command: a quote is open"), ("", "empty; write a program")]
)
def test_a_command_that_is_none_is_a_problem_of_the_file(read: Read, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        read(f"dr.hook.dns = {text}\n").configuration()
    assert "canary" not in str(refused.value)


def test_what_recoveries_have_is_listed_with_its_line_and_without_its_value(read: Read) -> None:
    file = read(OF_A + "dr.hook.dns = /opt/dns --key canary-hook\n")
    listed = effective_settings(file, file.configuration())
    assert "canary" not in repr(listed)
    (flow,) = [one for one in listed.flows if one.flow == "A->B"]
    (ours,) = [one for one in flow.clients if one.client == "recoveries"]
    assert [(one.name, one.key, one.value) for one in ours.settings] == [
        ("sasl.jaas.config", "A.dr.sasl.jaas.config", "[hidden]")
    ]
    whole = next(one for one in listed.worker if one.client == "whole file")
    assert [one.value for one in whole.settings if one.name == "dr.hook.dns"] == ["[hidden]"]
    assert not [one for one in listed.unused if "dr." in one.key]


def test_workers_share_nothing_of_recoveries(read: Read) -> None:
    stored = read(OF_A + "dr.hook.dns = /opt/dns\n").shared(FLOW)
    assert not [name for name in stored if "dr." in name]
