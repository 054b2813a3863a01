"""The man page of ``mm2py``, and the files beside it that packages install, made from the table of commands.

``python -m mm2py.cli.man_page`` (``make man``) in a checkout writes ``deploy/share``; a test compares both.
MirrorMaker 2 has no man page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mm2py.cli.command_arguments import Argument, CommandArguments, Takes, all_arguments
from mm2py.cli.completion import script_of

SHARE: Final = Path("deploy/share")
"""What it holds, the wheel installs under ``share`` of the environment."""
PLACES: Final[Mapping[str, str]] = {
    "bash": "bash-completion/completions/mm2py",
    "zsh": "zsh/site-functions/_mm2py",
    "fish": "fish/vendor_completions.d/mm2py.fish",
}
MAN: Final = "man/man1/mm2py.1"
EXIT_CODES: Final = (
    ("0", "A worker was stopped by SIGINT or SIGTERM, and has drained; with --workers all of them have."),
    ("1", "A later failure: no flow may run any more, or a stop could not drain in time."),
    ("2", "The file or the arguments are wrong."),
    ("130", "A second signal came: it stopped at once, without draining."),
)
VARIABLES: Final = (
    ("MM2PY_NATIVE", "0 turns the compiled core off; require ends every command where it cannot be used."),
    ("NO_COLOR", "If set, the log on a terminal has no colours."),
    ("RUNTIME_DIRECTORY, XDG_STATE_HOME", "Where the token of REST is: in the first of them that is set."),
    ("NOTIFY_SOCKET, WATCHDOG_USEC", "Set by systemd for a service of Type=notify: the worker says when it serves."),
)


def man_page() -> str:
    """Return the page in the macros of man(7). It names no version and no date, so a release changes nothing in it."""
    worker, *commands = all_arguments()
    lines = [
        '.TH MM2PY 1 "" mm2py "User Commands"',
        ".SH NAME",
        r"mm2py \- mirror topics between Kafka clusters",
        ".SH SYNOPSIS",
        ".B mm2py",
        _escaped("FILE [options]"),
        ".br",
        ".B mm2py",
        _escaped("COMMAND [options] ..."),
        ".SH DESCRIPTION",
        _escaped(
            f"{worker.description} mm2py FILE copies until it is stopped. A file that is called like a command is"
            " written ./NAME. Quote a flow ('A->B'), because > belongs to the shell."
        ),
        ".SH OPTIONS OF A WORKER",
        *_arguments(worker),
        ".SH COMMANDS",
    ]
    heading = ""
    for one in commands:
        assert one.command is not None  # noqa: S101
        if one.command.heading != heading:
            heading = one.command.heading
            lines.append(f".SS {_escaped(heading)}")
        lines += [".PP", f".B mm2py {_escaped(one.command.name)}", _escaped(_synopsis(one)), ".RS 4"]
        lines += [_escaped(one.description), *_arguments(one), ".PP", "For example:", ".PP", ".nf"]
        lines += [*map(_escaped, one.command.examples), ".fi", ".RE"]
    lines += [".SH EXIT STATUS", "2 and 130 mean the same for all commands; the others are with each command."]
    lines += _pairs(EXIT_CODES)
    lines += [".SH ENVIRONMENT", *_pairs(VARIABLES), ".SH SEE ALSO"]
    lines += [_escaped("mm2.properties.example and docs/ of the sources have every setting and the pages.")]
    return "\n".join(lines) + "\n"


def _synopsis(one: CommandArguments) -> str:
    found = ["[options]"] if one.options else []
    for position in one.positions:
        text = position.value + (" ..." if position.is_repeated else "")
        found.append(f"[{text}]" if position.is_optional else text)
    return " ".join(found)


def _arguments(one: CommandArguments) -> Iterator[str]:
    for argument in one.arguments:
        if argument.names != ("-h", "--help"):
            yield from (".TP", _tag(argument), _escaped(argument.text or "One of these."))


def _tag(argument: Argument) -> str:
    value = argument.value + (" ..." if argument.is_repeated else "")
    if not argument.names:
        return f".I {_escaped(value)}"
    names = ", ".join(argument.names)
    if argument.takes is Takes.NOTHING:
        return f".B {_escaped(names)}"
    return f'.BI "{_escaped(names)} " "{_escaped(f"[{value}]" if argument.is_optional else value)}"'


def _pairs(pairs: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for tag, text in pairs:
        yield from (".TP", f".B {_escaped(tag)}", _escaped(text))


def _escaped(text: str) -> str:
    found = (
        text.replace("…", "...").replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace('"', r"\(dq")
    )
    return rf"\&{found}" if found.startswith(".") else found


def shared_files() -> dict[str, str]:
    """Return what ``deploy/share`` contains, by path."""
    return {MAN: man_page(), **{place: script_of(shell) for shell, place in PLACES.items()}}


def write_shared(folder: Path) -> None:
    """Write the files of ``shared_files`` into a folder."""
    for name, text in shared_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


if __name__ == "__main__":
    write_shared(SHARE)
