"""What shells complete, asked of the shells themselves, and the man page: both follow from the table of commands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mm2py.cli import main as cli
from mm2py.cli.command_arguments import Takes, all_arguments
from mm2py.cli.commands import COMMANDS, CommandRow
from mm2py.cli.completion import SHELLS, script_of
from mm2py.cli.man_page import man_page, shared_files
from mm2py.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
NAMES = {one.name.split()[0] for one in COMMANDS}
HERE = [shell for shell in SHELLS if shutil.which(shell)]


def in_bash(folder: Path, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    (folder / "mm2py.bash").write_text(script_of("bash"))
    lines = [
        "source ./mm2py.bash",
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))',
        "compopt() { :; }",  # it works only while a key is being answered
        "_mm2py",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    command = ["bash", "-c", "\n".join(lines), "bash", "mm2py", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_first_word_is_a_command_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "staging.properties").touch()
    assert set(in_bash(tmp_path, "sta")) == {"status", "staging.properties"}
    assert {*NAMES, "help", "staging.properties"} <= set(in_bash(tmp_path, ""))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_bash_offers_every_option_of_a_command_and_none_of_another(tmp_path: Path, command: CommandRow) -> None:
    words = command.name.split()
    same = [one for one in all_arguments() if one.command is not None and one.command.name.split()[0] == words[0]]
    assert set(in_bash(tmp_path, *words, "-")) == {
        name for one in same for option in one.options for name in option.names
    }


def test_behind_a_file_bash_offers_the_options_of_a_worker_and_their_values(tmp_path: Path) -> None:
    assert {"--workers", "--clusters", "--log-level"} <= set(in_bash(tmp_path, "mm2.properties", "-"))
    assert "--worker-number" not in in_bash(tmp_path, "mm2.properties", "-")
    assert in_bash(tmp_path, "mm2.properties", "--log-level", "") == ["debug", "info", "warning", "error"]
    assert in_bash(tmp_path, "mm2.properties", "--log-format", "j") == ["json"]


def test_bash_offers_words_that_stand_at_a_position(tmp_path: Path) -> None:
    assert in_bash(tmp_path, "gaps", "mm2.properties", "a") == ["accept"]
    assert in_bash(tmp_path, "completion", "") == list(SHELLS)
    assert in_bash(tmp_path, "help", "ver") == ["verify"]
    assert in_bash(tmp_path, "status", "") == []  # readline offers files then
    assert "check" in in_bash(tmp_path, "dr", "")
    assert in_bash(tmp_path, "dr", "check", "") == []


@pytest.mark.skipif("fish" not in HERE, reason="fish is not here")
def test_fish_offers_commands_options_and_their_values(tmp_path: Path) -> None:
    (tmp_path / "mm2py.fish").write_text(script_of("fish"))

    def in_fish(line: str) -> set[str]:
        command = ["fish", "--no-config", "-c", 'source mm2py.fish; complete -C "$argv[1]"', line]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return {offered.split("\t")[0] for offered in done.stdout.splitlines()}

    assert in_fish("mm2py ") >= NAMES
    assert {"--json", "--watch", "--all"} <= in_fish("mm2py status --")
    assert "--watch" not in in_fish("mm2py check x --")
    assert {"debug", "error"} <= in_fish("mm2py x --log-level ")


@pytest.mark.parametrize("shell", HERE)
def test_a_shell_can_read_its_script(tmp_path: Path, shell: str) -> None:
    (tmp_path / "script").write_text(script_of(shell))
    done = subprocess.run([shell, "-n", "script"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_and_the_man_page_have_every_command_and_option(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["completion", shell]) == 0
    script, page = capsys.readouterr().out, man_page()
    for one in all_arguments():
        if one.command is not None:
            assert one.command.name.split()[0] in script
            assert f".B mm2py {one.command.name}".replace("-", r"\-") in page
        for option in one.options:
            for name in option.names:
                assert (f"-l {name[2:]}" if shell == "fish" and name.startswith("--") else name.lstrip("-")) in script
                assert name in {"-h", "--help"} or name.replace("-", r"\-") in page


def test_what_takes_a_file_is_completed_with_files() -> None:
    found = {
        (one.command.name, argument.value): argument.takes
        for one in all_arguments()
        if one.command
        for argument in one.arguments
    }
    assert found["status", "FILE"] is Takes.FILES
    assert found["plan", "P"] is Takes.FILES
    assert found["status", "A"] is Takes.TEXT
    assert found["completion", "bash|zsh|fish"] is Takes.CHOICES


def test_what_packages_install_is_made_of_the_table_as_it_is_now() -> None:
    kept = {
        path.relative_to(ROOT / "deploy/share").as_posix(): path.read_text()
        for path in (ROOT / "deploy/share").rglob("*")
        if path.is_file()
    }
    assert kept == shared_files(), "run make man"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not here")
def test_the_man_page_has_no_line_that_groff_warns_of() -> None:
    command = ["groff", "-man", "-ww", "-Tascii", "-rLL=100n"]
    done = subprocess.run(command, input=man_page(), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "[options] FILE A->B" in done.stdout


def test_the_option_that_describes_a_command_does_nothing_for_people() -> None:
    with pytest.raises(ConfigError, match=r"--describe-arguments is for mm2py itself\. Try mm2py status --help"):
        cli.run(["status", "--describe-arguments"])
