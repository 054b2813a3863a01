"""The command line: what is refused before any cluster is touched, in one line that names the thing, with code 2.

What needs a running worker (signals, exit codes 0, 1 and 130) is in tests/cluster/commands/test_bad_input.py.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from mm2py.cli import main as cli
from mm2py.cli.commands import COMMANDS, CommandRow, find
from mm2py.cli.main import main, parse_arguments, recopies_of
from mm2py.errors import ConfigError
from mm2py.flow import parse_flow
from mm2py.output import LineFile

GOOD = """\
clusters = A, B
A.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
A->B.enabled = true
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process; returns exit code, standard output and standard error."""

    def run_it(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["mm2py", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        output = capfd.readouterr()
        return ended.value.code, output.out, output.err

    return run_it


@pytest.fixture
def refused(run: Run, tmp_path: Path) -> Callable[..., str]:
    """Runs the command with a file of the given text, sees that it is refused in one line, and returns the line."""

    def run_it(text: str | bytes, *arguments: str) -> str:
        file = tmp_path / "mm2.properties"
        file.write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
        return one_line(run(str(file), *arguments)).replace(str(file), "FILE")

    return run_it


def one_line(result: tuple[int, str, str]) -> str:
    """Return the one line on standard error of a run that ended with 2."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.endswith("\n")
    assert err[:-1].isprintable(), err
    assert err.startswith("mm2py: ")
    return err[len("mm2py: ") : -1]


# -- the file ----------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(run: Run, tmp_path: Path) -> None:
    line = one_line(run(str(tmp_path / "none.properties")))
    assert line == f"Cannot read {tmp_path}/none.properties: No such file or directory. Check its name and its rights."


def test_a_directory_and_a_pipe_are_no_files(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert one_line(run(str(tmp_path))) == f"{tmp_path} is a directory. Name a properties file."
    assert one_line(run(f"{tmp_path}/fifo")) == f"{tmp_path}/fifo is not a plain file. Name a properties file."
    assert one_line(run("/dev/null")) == "/dev/null is not a plain file. Name a properties file."


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_the_right_to_read_it_is_named(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(GOOD)
    file.chmod(0)
    assert one_line(run(str(file))) == f"Cannot read {file}: Permission denied. Check its name and its rights."


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "\udcc3"], ids=ascii)
def test_a_file_name_cannot_break_the_line(run: Run, name: str) -> None:
    assert "No such file or directory" in one_line(run(name))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "FILE: clusters is required: the aliases of all clusters, separated by commas."),
        ("# only\n! comments\n", "FILE: clusters is required: ..."),
        ("A->B.enabled=true\n", "FILE: clusters is required: ..."),
        ("clusters=\n", "FILE, line 1: clusters is empty."),
        (GOOD.replace("A, B", "A,B,A"), "FILE, line 1: clusters is a list that names 'A' twice."),
        (GOOD.replace("A, B", "A,,B"), "FILE, line 1: clusters is a list with an empty entry."),
        (
            GOOD.replace("true", "false") + "emit.heartbeats.enabled=false\n",
            "FILE: No source->target replication flows; enable one with A->B.enabled ...",
        ),
        (GOOD + "A->C.enabled=true\n", "FILE, line 5: flow A->C.enabled ends at C, which is not in clusters ..."),
        (GOOD + "C->B.topics=x\n", "FILE, line 5: flow C->B.topics begins at C, which is not in clusters ..."),
        (GOOD + "A->A.enabled=true\n", "FILE, line 5: flow A->A leads from a cluster to itself."),
        (GOOD + "A->B->C.enabled=true\n", "FILE, line 5: A->B->C.enabled names no flow; write A->B.setting, ..."),
        (GOOD + "->B.enabled=true\n", "FILE, line 5: ->B.enabled names no flow; write A->B.setting, ..."),
        (GOOD + "A\\ ->\\ B.topics=x\n", "FILE, line 5: A -> B.topics names no flow; write A->B.setting, ..."),
        (GOOD + "A->B.topics=good,[\n", "FILE, line 5: A->B.topics: pattern '[' (entry 2 of 2), character 1: ..."),
        (GOOD + "A->B.topics.exclude=(\n", "FILE, line 5: A->B.topics.exclude: pattern '(' ..."),
        (GOOD + "A->B.enabled=maybe\n", "FILE, line 5: A->B.enabled = 'maybe' is neither true nor false."),
        (GOOD + "A.bootstrap.servers=h:0\n", "FILE, line 5: A.bootstrap.servers = 'h:0' ... not from 1 to 65535."),
        (GOOD + "A.bootstrap.servers=h\n", "FILE, line 5: A.bootstrap.servers = 'h' ..."),
        (GOOD + "A.bootstrap.servers=http://h:1\n", "FILE, line 5: A.bootstrap.servers ... without a protocol..."),
        (GOOD.replace("B.boot", "#"), "FILE: B.bootstrap.servers is missing, flow A->B needs it as its target."),
        (GOOD + "replication.factor=0\n", "FILE, line 5: replication.factor = '0' ..."),
        (GOOD + "x=\\u12\n", "FILE: The entry of line 5 has \\u without four hexadecimal digits. ..."),
        (GOOD + "replication.policy.class=os.system\n", "FILE, line 5: replication.policy.class: ... 'os.system'. ..."),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_its_line(refused: Callable[..., str], text: str, wanted: str) -> None:
    """Dots in a row stand for words that may change."""
    assert re.fullmatch(".*".join(map(re.escape, wanted.split("..."))), refused(text))


def test_a_file_of_another_kind_is_refused_quickly(refused: Callable[..., str]) -> None:
    assert "Is it a properties file?" in refused(b"x" * (17 << 20))
    assert "FILE is UTF-16" in refused("clusters=A".encode("utf-16"))


# -- the arguments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "The following arguments are required: FILE. Try mm2py --help."),
        (["FILE", "other"], "Unrecognized arguments: other. Try mm2py --help."),
        (["FILE", "--frobnicate"], "Unrecognized arguments: --frobnicate. Try mm2py --help."),
        (["FILE", "--vers"], "Unrecognized arguments: --vers. Try mm2py --help."),
        (["FILE", "--clusters"], "Argument --clusters: expected at least one argument. Try mm2py --help."),
        (["FILE", "--clusters", "X"], "FILE: --clusters names 'X', not in clusters, which are A, B."),
        (["OFF", "--clusters", "A"], "OFF: No source->target replication flows into A; enabled are A->B."),
        (["FILE", "--allow-recopy"], "Argument --allow-recopy: expected at least one argument. Try mm2py --help."),
        (["FILE", "--allow-recopy", "A->B"], "--allow-recopy 'A->B' names no topic. Write it as A->B:TOPIC."),
        (["FILE", "--allow-recopy", "A->B:"], "--allow-recopy 'A->B:' names no topic. Write it as A->B:TOPIC."),
        (
            ["FILE", "--allow-recopy", "A-"],
            "'A-' is not a flow. Put the flow in quotes, as in 'A->B'. Without them the shell takes > for a"
            " redirection, and writes the output into a file.",
        ),
        (["FILE", "--allow-recopy", "A:x"], "'A' is not a flow. Write it as A->B, without spaces, with two aliases."),
        (
            ["FILE", "--allow-recopy", "A->A:x"],
            "Flow A->A leads from a cluster to itself. Name two different clusters.",
        ),
        (
            ["FILE", "--allow-recopy", "B->A:x"],
            "--allow-recopy names B->A, which does not run. Name a flow of the file.",
        ),
        (
            ["FILE", "--log-level", "chatty"],
            "Argument --log-level: invalid choice: 'chatty' (choose from 'debug', 'info', 'warning', 'error')."
            " Try mm2py --help.",
        ),
        (
            ["FILE", "--log-format", "xml"],
            "Argument --log-format: invalid choice: 'xml' (choose from 'text', 'json'). Try mm2py --help.",
        ),
    ],
)
def test_what_is_wrong_in_the_arguments_is_named(run: Run, tmp_path: Path, arguments: list[str], wanted: str) -> None:
    files = {"FILE": GOOD, "OFF": f"{GOOD}emit.heartbeats.enabled=false\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    line = one_line(run(*(str(tmp_path / argument) if argument in files else argument for argument in arguments)))
    assert line.replace(f"{tmp_path}/", "") == wanted


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["stauts", "FILE"], "'stauts' is neither a file nor a command. Did you mean mm2py status?"),
        (["stauts"], "'stauts' is neither a file nor a command. Did you mean mm2py status?"),
        (["aply", "FILE", "--yes"], "'aply' is neither a file nor a command. Did you mean mm2py apply?"),
        (
            ["lag", "FILE"],
            f"'lag' is neither a file nor a command. Commands are help, {', '.join(one.name for one in COMMANDS)}.",
        ),
        (["lag", "--apply"], "Cannot read lag: No such file or directory. Check its name and its rights."),
    ],
)
def test_a_command_that_there_is_not_is_named_and_not_its_file(
    run: Run, tmp_path: Path, arguments: list[str], wanted: str
) -> None:
    (tmp_path / "FILE").write_text(GOOD)
    assert one_line(run(*(str(tmp_path / "FILE") if each == "FILE" else each for each in arguments))) == wanted


def test_a_file_may_be_called_almost_like_a_command(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stauts").write_text("")
    assert one_line(run("stauts")).startswith("stauts: clusters is required")


def test_the_help_names_every_option(run: Run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for name in ("FILE", "--clusters", "--log-level", "--log-format", "--allow-recopy", "--version"):
        assert name in out
    assert out.isascii()


def test_the_help_lists_the_commands_a_line_each(run: Run) -> None:
    for asked in (["--help"], ["help"]):
        code, out, err = run(*asked)
        assert (code, err) == (0, "")
        for command in COMMANDS:
            assert sum(line.startswith(f"  mm2py {command.name} ") for line in out.splitlines()) == 1
        assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_has_a_help_with_examples_that_it_takes(run: Run, command: CommandRow) -> None:
    name = command.name.split()
    helped = run("help", *name)
    assert helped == run(*name, "--help")
    assert (helped[0], helped[2]) == (0, "")
    assert max(map(len, helped[1].splitlines())) <= 100
    parse = getattr(import_module(command.module), "parse_arguments", lambda arguments: arguments)
    for example in command.examples:
        assert f"  {example}\n" in helped[1]
        words = shlex.split(example.split("| ")[-1])
        found, behind = find(words[1:])
        assert words[0] == "mm2py" and found == command
        parse(behind, **({"now_ms": 0} if command.name in {"history", "why"} else {}))


def test_help_of_what_is_no_command_says_so(run: Run) -> None:
    assert run("help", "stats") == (2, "", "mm2py: There is no command 'stats'. Try mm2py help.\n")


def test_recopies_may_be_given_many_at_once_and_again() -> None:
    options = parse_arguments(["f", "--allow-recopy", "A->B:x", "A->B:y", "--allow-recopy", "B->A:x:y", "A->B:x"])
    assert recopies_of(options.allow_recopy) == {parse_flow("A->B"): {"x", "y"}, parse_flow("B->A:x"): {"y"}}


def test_levels_are_read_in_any_case() -> None:
    assert parse_arguments(["f", "--log-level", "WARNING"]).log_level == "warning"


@pytest.mark.parametrize("text", ["x", "1", "1:2:3", "1:x"])
def test_version_caps_that_are_none_are_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cli.VERSION_CAPS_VARIABLE, text)
    with pytest.raises(ConfigError, match="is not key:version pairs"):
        cli._version_caps()


# -- the log -----------------------------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_written_is_lost_and_disturbs_nobody() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        for descriptor in (writing, full):
            log = LineFile(descriptor)
            for _ in range(3):
                print("lost", file=log, flush=True)
    finally:
        os.close(writing)
        os.close(full)


def test_a_line_of_the_log_is_written_at_once_and_whole() -> None:
    reading, writing = os.pipe()
    try:
        log = LineFile(writing)
        print("flow.ready \udcff é", file=log, flush=True)
        assert os.read(reading, 100) == "flow.ready \\udcff é\n".encode()
    finally:
        os.close(reading)
        os.close(writing)


# -- nothing left ------------------------------------------------------------------------------------------------------


def test_flows_that_the_file_refuses_end_the_process_with_1_and_show_no_secret(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        GOOD + "A.security.protocol=SASL_SSL\n"
        'A.sasl.jaas.config=org.example.Login required password="canary1";\n'
        "A.ssl.keystore.password=canary2\nmy.secret=canary3\ncanary4canary4canary4canary4canary4=canary5\n"
    )
    for level, log_format in [("debug", "text"), ("debug", "json")]:
        code, out, err = run(str(file), "--log-level", level, "--log-format", log_format)
        assert (code, out) == (1, "")
        assert "canary" not in err
        assert "Flow A->B is not started: " in err
        assert "A.sasl.jaas.config (line 6) asks for a login module that mm2py does not have" in err
        assert "worker.nothing_left" in err.splitlines()[-1]
        assert len(err.splitlines()) < 30


def test_identity_both_ways_is_refused_for_both_flows(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        GOOD + "B->A.enabled=true\nreplication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    )
    code, _, err = run(str(file))
    assert code == 1
    assert re.search(
        r"flow\.refused flow=A->B .*come back by B -> A and be copied without end \(.*begin differently", err
    )
    assert re.search(r"flow\.refused flow=B->A .*come back by A -> B and be copied without end", err)


# -- replay ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "The following arguments are required: FILE, A->B:TOPIC. Try mm2py replay --help."),
        (["FILE", "A->B:orders"], "One of the arguments --export --append is required. Try mm2py replay --help."),
        (["FILE", "A->B", "--append"], "'A->B' names no topic. Write it as A->B:TOPIC."),
        (["FILE", "A->B:../orders", "--export", "."], "'A->B:../orders' names no topic. Write it as A->B:TOPIC."),
        (["FILE", "B->A:orders", "--append"], "FILE enables no flow B->A. Name a flow of the file."),
    ],
)
def test_a_replay_that_cannot_be_meant_is_refused(run: Run, tmp_path: Path, arguments: list[str], line: str) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(GOOD)
    given = [str(file) if argument == "FILE" else argument for argument in arguments]
    assert one_line(run("replay", *given)).replace(str(file), "FILE") == line


# -- mm2py gaps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "The following arguments are required: FILE ... Try mm2py gaps --help."),
        (["FILE", "accept"], "Accept names no partition. Try mm2py gaps --help."),
        (["FILE", "forget", "A->B:x:0"], "Argument action: invalid choice: 'forget' ..."),
        (["FILE", "accept", "A->B"], "'A->B' names no partition. Write it as A->B:TOPIC:PARTITION, in quotes."),
        (["FILE", "accept", "A->B:x:one"], "'A->B:x:one' names no partition. ..."),
        (["FILE", "accept", "A-"], "'A-' is not a flow. Put the flow in quotes, as in 'A->B'. ..."),
        (["FILE", "accept", "AB:x:1"], "'AB' is not a flow. ..."),
        (["FILE", "accept", "B->A:x:1"], "B->A is no flow that runs. Name a flow of the file."),
        (["FILE", "--clusters", "A"], "FILE: No source->target replication flows into A ..."),
    ],
    ids=str,
)
def test_what_gaps_cannot_do_is_said_in_one_line(run: Run, tmp_path: Path, arguments: list[str], wanted: str) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(GOOD + "emit.heartbeats.enabled = false\n")
    named = [str(file) if argument == "FILE" else argument for argument in arguments]
    line = one_line(run("gaps", *named)).replace(str(file), "FILE")
    begin, dots, end = wanted.partition(" ...")
    assert line.startswith(begin)
    assert line.endswith(end) if dots else line == wanted


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], "The following arguments are required: FILE Try mm2py apply --help."),
        (["FILE", "--yes", "--dry-run"], "Argument --dry-run: not allowed with argument --yes. ..."),
        (["FILE", "--clusters", "A"], "FILE: No source->target replication flows into A ..."),
        (["missing"], "Cannot read missing ..."),
    ],
    ids=str,
)
def test_what_apply_cannot_do_is_said_in_one_line(run: Run, tmp_path: Path, arguments: list[str], wanted: str) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(GOOD + "emit.heartbeats.enabled = false\n")
    named = [str(file) if argument == "FILE" else argument for argument in arguments]
    line = one_line(run("apply", *named)).replace(str(file), "FILE")
    assert line.startswith(wanted.partition(" ...")[0].removesuffix(" Try mm2py apply --help."))


def test_gaps_takes_its_arguments_in_any_order() -> None:
    from mm2py.cli.gaps import parse_arguments as parse

    for arguments in (
        ["f", "accept", "A->B:x:1", "--format", "json"],
        ["--format", "json", "f", "accept", "A->B:x:1"],
        ["f", "--format", "json", "accept", "A->B:x:1"],
        ["f", "--json", "accept", "A->B:x:1"],
    ):
        options = parse(arguments)
        assert (str(options.file), options.action, options.partitions) == ("f", "accept", ["A->B:x:1"])
        assert (options.format, options.all) == ("json", False)


def test_a_file_called_gaps_is_named_with_its_directory(run: Run, tmp_path: Path) -> None:
    assert one_line(run(f"{tmp_path}/gaps")).startswith(f"Cannot read {tmp_path}/gaps")


def test_gaps_of_a_cluster_that_does_not_answer_fail_within_the_deadline(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mm2py.flow_sides.DEADLINE_S", 0.3)
    file = tmp_path / "mm2.properties"
    file.write_text(GOOD)
    code, out, err = run("gaps", str(file))
    assert (code, out) == (1, "")
    assert err.startswith(
        "mm2py: A->B cannot be listed: B does not answer: reading mm2-status.A.internal took more than 0.3 s. Check "
    )
