"""``mm2py completion SHELL``: prints the script by which bash, zsh or fish completes commands, options and files.

The scripts hold all they need, so a key press starts no Python. The first word may be a file or a command, which
generators for argparse do not know; so the scripts are made here, from ``command_arguments.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mm2py.cli.command import CommandParser
from mm2py.cli.command_arguments import Argument, CommandArguments, Takes, all_arguments
from mm2py.cli.commands import HELP
from mm2py.output import write_out
from mm2py.status.exit_codes import EXIT_DONE


class CompletionArguments(argparse.Namespace):
    """What follows ``completion`` on the command line."""

    shell: str


def parse_arguments(arguments: Sequence[str]) -> CompletionArguments:
    """Read what follows ``completion`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "completion",
        "Prints the script by which a shell completes commands, options and files. Packages install it where shells"
        " look; else, for the shell that runs now: source <(mm2py completion bash), the same with zsh, or mm2py"
        " completion fish | source. Exit codes: 0 printed; 2 wrong arguments.",
    )
    parser.add_argument("shell", choices=tuple(SHELLS), help="bash 4 or later, zsh or fish")
    return parser.parse_args(arguments, namespace=CompletionArguments())


def run(arguments: Sequence[str]) -> int:
    """Print a script. Raises: ConfigError, the arguments are wrong."""
    options = parse_arguments(arguments)
    write_out(script_of(options.shell))
    return EXIT_DONE


def script_of(shell: str) -> str:
    """Return the script of a shell, which is one of ``SHELLS``."""
    return SHELLS[shell](completed(all_arguments()))


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """What may follow the first word of a command line."""

    name: str
    """The first word; empty: what follows a file."""
    summary: str
    options: tuple[Argument, ...]
    first: tuple[str, ...]
    """The words that may stand behind the name; none: a file does."""
    later: tuple[str, ...]
    """Words that may stand behind that."""


def completed(commands: Iterable[CommandArguments]) -> list[CompletedCommand]:
    """Return the commands by their first words. Commands of two words that share the first one are one here."""
    found: dict[str, CompletedCommand] = {}
    for one in commands:
        name, *second = ("",) if one.command is None else one.command.name.split()
        summary = "" if one.command is None else one.command.summary
        before = found.get(name, CompletedCommand(name, summary, (), (), ()))
        options = {option.names: option for option in (*before.options, *one.options)}
        choices = [position.choices for position in one.positions]
        places = [(), *choices] if second else [*choices, ()]
        first = (*before.first, *second, *places[0])
        later = (*before.later, *(word for words in places[1:] for word in words))
        found[name] = CompletedCommand(name, before.summary, tuple(options.values()), first, later)
    names = tuple(name for name in found if name)
    return [*found.values(), CompletedCommand(HELP, "show the help of a command", (), names, ())]


# -- bash --------------------------------------------------------------------------------------------------------------


def _bash(commands: Sequence[CompletedCommand]) -> str:
    names = [one.name for one in commands if one.name]
    values, offered = [], []
    for one in commands:
        pattern = one.name or "*"
        for option in one.options:
            each = "|".join(f"{pattern}:{name}" for name in option.names)
            if option.takes is Takes.CHOICES:
                values.append(f'        {each}) _mm2py_words "{" ".join(option.choices)}"; return ;;')
            elif option.takes is Takes.TEXT and not option.is_optional:
                values.append(f"        {each}) compopt +o default; return ;;")
            elif option.takes is Takes.FILES:
                values.append(f"        {each}) return ;;")
        flags = " ".join(name for option in one.options for name in option.names)
        words = f'first="{" ".join(one.first)}" later="{" ".join(one.later)}"'
        offered.append(f'        {pattern}) options="{flags}" {words} ;;')
    lines = [
        "# Completion of mm2py for bash 4 or later, made by: mm2py completion bash",
        '_mm2py_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "${COMP_WORDS[COMP_CWORD]}"); }',
        "_mm2py() {",
        "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}",
        "    local options first later",
        "    COMPREPLY=()",
        "    if ((COMP_CWORD == 1)) && [[ $word != -* ]]; then",
        f'        _mm2py_words "{" ".join(names)}"',
        '        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")',
        "        compopt -o filenames",
        "        return",
        "    fi",
        '    case "$command:$before" in',
        *sorted(values, key=lambda line: line.lstrip().startswith("*")),
        "    esac",
        '    case "$command" in',
        *sorted(offered, key=lambda line: line.lstrip().startswith("*")),
        "    esac",
        "    if [[ $word == -* ]]; then",
        '        _mm2py_words "$options"',
        "    elif ((COMP_CWORD == 2)) && [[ -n $first ]]; then",
        '        _mm2py_words "$first"',
        "    elif ((COMP_CWORD > 2)) && [[ -n $later ]]; then",
        '        _mm2py_words "$later"',
        "    fi",
        "}",
        "complete -o default -F _mm2py mm2py",
    ]
    return "\n".join(lines) + "\n"


# -- zsh ---------------------------------------------------------------------------------------------------------------


def _zsh(commands: Sequence[CompletedCommand]) -> str:
    lines = [
        "#compdef mm2py",
        "# Completion of mm2py for zsh, made by: mm2py completion zsh",
        "_mm2py() {",
        "    local -a commands",
        "    commands=(",
        *(f"        {_quoted(f'{one.name}:{one.summary}')}" for one in commands if one.name),
        "    )",
        "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then",
        "        _describe -t commands command commands",
        "        _files",
        "        return",
        "    fi",
        "    case $words[2] in",
    ]
    for one in sorted(commands, key=lambda one: not one.name):
        specs = [spec for option in one.options for spec in _zsh_specs(option)]
        specs += [f"1:word:({' '.join(one.first)})"] if one.first else []
        specs += [f"*:word:({' '.join(one.later)})" if one.later else "*:file:_files"]
        begin = "shift words; (( CURRENT-- )); " if one.name else ""
        lines.append(f"        {one.name or '*'}) {begin}_arguments {' '.join(map(_quoted, specs))} ;;")
    lines += [
        "    esac",
        "}",
        'if [[ $funcstack[1] == _mm2py ]]; then _mm2py "$@"; else compdef _mm2py mm2py; fi',
    ]
    return "\n".join(lines) + "\n"


def _zsh_specs(option: Argument) -> list[str]:
    text = option.text
    for special in "\\[]:":
        text = text.replace(special, f"\\{special}")
    action = {Takes.CHOICES: f"({' '.join(option.choices)})", Takes.FILES: "_files"}.get(option.takes, " ")
    message = option.value.replace(":", "\\:")
    behind = "" if option.takes is Takes.NOTHING else f"{'::' if option.is_optional else ':'}{message}:{action}"
    repeated = "*" if option.is_repeated else ""
    return [f"{repeated}{name}[{text}]{behind}" for name in option.names]


# -- fish --------------------------------------------------------------------------------------------------------------


def _fish(commands: Sequence[CompletedCommand]) -> str:
    names = " ".join(one.name for one in commands if one.name)
    lines = ["# Completion of mm2py for fish, made by: mm2py completion fish"]
    for one in commands:
        if one.name:
            lines.append(f"complete -c mm2py -n __fish_use_subcommand -a {one.name} -d {_fish_quoted(one.summary)}")
        seen = f"__fish_seen_subcommand_from {one.name}" if one.name else f"not __fish_seen_subcommand_from {names}"
        begin = f"complete -c mm2py -n {_fish_quoted(seen)}"
        if one.first:
            words = " ".join(one.first)
            unseen = f"{seen}; and not __fish_seen_subcommand_from {words}"
            lines.append(f"complete -c mm2py -n {_fish_quoted(unseen)} -f -a {_fish_quoted(words)}")
        if one.later:
            lines.append(f"{begin} -a {_fish_quoted(' '.join(one.later))}")
        for option in one.options:
            named = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = {
                Takes.NOTHING: "",
                Takes.TEXT: "" if option.is_optional else " -x",
                Takes.FILES: " -r",
                Takes.CHOICES: f" -x -a {_fish_quoted(' '.join(option.choices))}",
            }[option.takes]
            lines.append(f"{begin} {named}{value} -d {_fish_quoted(option.text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Final[Mapping[str, Callable[[Sequence[CompletedCommand]], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
