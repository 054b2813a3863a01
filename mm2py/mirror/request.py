"""What ``mm2py mirror`` is asked for: sources, target, topics and names, from options and client files. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mm2py.errors import ConfigError
from mm2py.mirror.client_file import NO_FILE, ClientFile
from mm2py.mirror.old_options import notes_on

TARGET: Final = "target"
"""The alias of the target."""
EVERYTHING: Final = ".*"
_SEPARATORS: Final = "._-"
_ALIAS_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class MirrorArguments:
    """The command line, with the files that it names."""

    sources: Sequence[str] = ()
    """``--from``, addresses of brokers."""
    source_files: Sequence[ClientFile] = ()
    """``--from-config``."""
    target: str = ""
    target_file: ClientFile = NO_FILE
    topics: str | None = None
    """``--topics``, ``--whitelist`` or ``--include``."""
    exclude: str | None = None
    blacklist: str | None = None
    prefixes: Sequence[str] = ()
    identity: bool = False
    group: str | None = None
    """``--from-group``; None: not given."""
    from_latest: bool = False
    old: Mapping[str, str] = field(default_factory=dict)
    """Options of ``old_options.py``."""


@dataclass(frozen=True, slots=True)
class MirroredSource:
    """One cluster to read from."""

    alias: str
    bootstrap: str
    group: str
    """The group of an older mirror, at whose commits the copy begins; empty: none."""
    client: ClientFile


@dataclass(frozen=True, slots=True)
class MirrorRequest:
    """What is to be mirrored."""

    sources: tuple[MirroredSource, ...]
    target: str
    target_client: ClientFile
    topics: str
    exclude: str
    """Empty: only what is left out by default."""
    is_identity: bool
    separator: str
    from_latest: bool
    notes: tuple[str, ...]
    """What the user should know, a sentence each."""


def read_request(given: MirrorArguments) -> MirrorRequest:
    """Return what is asked for.

    Raises:
        ConfigError: something is missing, contradicts itself, or cannot be done.
    """
    notes = list(notes_on(given.old))
    topics = _topics(given)
    sources = _sources(given)
    is_identity, aliases, separator = _names(given, [bootstrap for bootstrap, _ in sources])
    target = _one(given.target, given.target_file.bootstrap, "--to", "the producer's file")
    if not target:
        raise ConfigError("There is no target.", remedy="Name its brokers: --to HOST:PORT.")
    if same := {_hosts(bootstrap) for bootstrap, _ in sources} & {_hosts(target)}:
        raise ConfigError(f"{','.join(*same)} is source and target.", remedy="Name two clusters.")
    found = []
    for (bootstrap, client), alias in zip(sources, aliases, strict=True):
        group = client.group if given.group is None else given.group
        found.append(MirroredSource(alias, bootstrap, group, client))
        if group:
            notes.append(f"What was never copied begins where group {group} has committed on {bootstrap}.")
    left_out = sorted({key for client in (*given.source_files, given.target_file) for key in client.left_out})
    if left_out:
        notes.append(f"Means nothing here: {', '.join(left_out)}.")
    return MirrorRequest(
        sources=tuple(found),
        target=target,
        target_client=given.target_file,
        topics=topics,
        exclude=given.blacklist or given.exclude or "",
        is_identity=is_identity,
        separator=separator,
        from_latest=given.from_latest,
        notes=tuple(notes),
    )


def _topics(given: MirrorArguments) -> str:
    if (given.topics is None) == (given.blacklist is None):
        what = (
            "Neither topics nor a blacklist is given." if given.topics is None else "Topics and a blacklist are given."
        )
        raise ConfigError(what, remedy="Give exactly one: --topics REGEX (or --whitelist), or --blacklist REGEX.")
    if given.blacklist is not None and given.exclude is not None:
        raise ConfigError("--blacklist and --exclude are given.", remedy="Give one of them; they mean the same.")
    for name, value in (("topics", given.topics), ("blacklist", given.blacklist), ("exclude", given.exclude)):
        if value is not None and not value.strip():
            raise ConfigError(f"The regular expression of {name} is empty.", remedy="Write one, such as 'orders.*'.")
    return EVERYTHING if given.topics is None else given.topics


def _sources(given: MirrorArguments) -> list[tuple[str, ClientFile]]:
    """Return each source's brokers and its client file."""
    files, addresses = list(given.source_files), list(given.sources)
    if not addresses:
        addresses = [""] * len(files)
    if not addresses:
        raise ConfigError("There is no source.", remedy="Name its brokers: --from HOST:PORT.")
    if len(files) == 1:
        files *= len(addresses)
    files = files or [NO_FILE] * len(addresses)
    if len(files) != len(addresses):
        raise ConfigError(
            f"There are {len(addresses)} sources and {len(files)} client files for them.",
            remedy="Give one file for all sources, or one for each in the same order.",
        )
    found = []
    for address, client in zip(addresses, files, strict=True):
        bootstrap = _one(address, "" if len(given.sources) > 1 else client.bootstrap, "--from", "the consumer's file")
        if not bootstrap:
            raise ConfigError(
                "A client file of a source names no brokers.", remedy="Write bootstrap.servers in it, or use --from."
            )
        found.append((bootstrap, client))
    if len({_hosts(bootstrap) for bootstrap, _ in found}) < len(found):
        raise ConfigError("Two sources name the same brokers.", remedy="Name each source once.")
    return found


def _one(option: str, in_file: str, name: str, file: str) -> str:
    """Return the brokers that are named once. Raises: ConfigError, two places name different ones."""
    if option and in_file and _hosts(option) != _hosts(in_file):
        raise ConfigError(f"{name} and bootstrap.servers of {file} differ.", remedy="Name the brokers in one place.")
    return option or in_file


def _names(given: MirrorArguments, brokers: Sequence[str]) -> tuple[bool, list[str], str]:
    """Return whether topics keep their names, the alias of each source, and the text behind it in names of copies."""
    prefixes = list(given.prefixes)
    if given.identity and prefixes:
        raise ConfigError("--identity and --prefix are given.", remedy="Give one of them.")
    if not prefixes:
        if len(brokers) > 1:
            raise ConfigError(
                f"There are {len(brokers)} sources, and topics of the same name would mix.",
                remedy="Give each source a prefix, in the same order: --prefix P1 --prefix P2.",
            )
        return True, [_alias_of(brokers[0])], "."
    if len(prefixes) != len(brokers):
        raise ConfigError(
            f"There are {len(brokers)} sources and {len(prefixes)} prefixes.", remedy="Give each source one prefix."
        )
    separators = {prefix[-1] if prefix[-1:] in _SEPARATORS and len(prefix) > 1 else "." for prefix in prefixes}
    if len(separators) > 1:
        raise ConfigError(
            f"The prefixes end in different characters: {', '.join(prefixes)}.",
            remedy="Let all of them end in the same one of . _ -, or in none, which means a dot.",
        )
    (separator,) = separators
    aliases = [prefix.removesuffix(separator) for prefix in prefixes]
    for prefix, alias in zip(prefixes, aliases, strict=True):
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,100}", alias) or separator in alias or alias == TARGET:
            raise ConfigError(
                f"The prefix {prefix!r} cannot be used.",
                remedy=f"Use letters and digits, and at the end one of . _ - that is not in it before; not {TARGET!r}.",
            )
    if len(set(aliases)) < len(aliases):
        raise ConfigError(f"Two prefixes are {sorted(aliases)[0]!r}.", remedy="Give each source its own.")
    return False, aliases, separator


def _hosts(bootstrap: str) -> tuple[str, ...]:
    return tuple(sorted(part.strip().lower() for part in bootstrap.split(",") if part.strip()))


def _alias_of(bootstrap: str) -> str:
    """Return a name for a source whose topics keep their names: the same for the same brokers in any order."""
    first = (_hosts(bootstrap) or ("",))[0]
    return re.sub(r"[^a-z0-9]+", "-", first).strip("-")[:_ALIAS_MOST] or "source"
