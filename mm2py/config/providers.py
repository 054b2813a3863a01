"""The config providers that a settings file may name: a properties file, a directory of files, the environment.

A file names them by the names of Kafka's classes; no class is loaded. Messages name files, keys and providers, never
the values that were read.

Counterpart: FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider of Apache Kafka's clients.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import Final

import regex

from mm2py.config.kinds import BadValue, java_trim, strings
from mm2py.config.layers import Layer, bad_value, named
from mm2py.config.properties import FILE_MAX_BYTES, PropertyEntry, parse_properties
from mm2py.config.references import Provider, Unresolved
from mm2py.errors import ConfigError
from mm2py.secret import printable
from mm2py.topics.filters import NotTranslatable, compile_java

PROVIDERS: Final = "config.providers"
_PACKAGE: Final = "org.apache.kafka.common.config.provider"
_FILE: Final = f"{_PACKAGE}.FileConfigProvider"
_DIRECTORY: Final = f"{_PACKAGE}.DirectoryConfigProvider"
_ENVIRONMENT: Final = f"{_PACKAGE}.EnvVarConfigProvider"


class FileProvider:
    """``${file:PATH:KEY}``: a key of a properties file, in UTF-8."""

    def __init__(self, allowed: Sequence[str] | None) -> None:
        """``allowed``: the only directories and files from which may be read; None: no limit."""
        self._allowed = allowed
        self._read: dict[str, Mapping[str, PropertyEntry]] = {}

    def __call__(self, path: str, key: str) -> str:
        if not path:
            raise Unresolved(f"the reference to {printable(key)!r} names no file; write ${{file:PATH:KEY}}")
        if path not in self._read:
            try:
                self._read[path] = parse_properties(_text(path, self._allowed)).entries
            except ConfigError as error:
                raise Unresolved(f"{printable(path)} is no properties file: {error}".rstrip(".")) from None
        entry = self._read[path].get(key)
        if entry is None:
            raise Unresolved(f"{printable(path)} has no key {printable(key)!r}")
        return entry.value


class DirectoryProvider:
    """``${dir:PATH:FILE}``: the whole text of one file of a directory, in UTF-8, its last line end included."""

    def __init__(self, allowed: Sequence[str] | None) -> None:
        """``allowed``: see ``FileProvider``."""
        self._allowed = allowed

    def __call__(self, path: str, key: str) -> str:
        if not path:
            raise Unresolved(f"the reference to {printable(key)!r} names no directory; write ${{dir:PATH:FILE}}")
        if key in ("", ".", "..") or "/" in key:
            raise Unresolved(f"{printable(key)!r} is no name of a file in {printable(path)}")
        return _text(os.path.join(path, key), self._allowed)


class EnvironmentProvider:
    """``${env:NAME}``: a variable of the environment of this process."""

    def __init__(self, environment: Mapping[str, str], allowed: regex.Pattern[str] | None) -> None:
        """``allowed``: matches the names of all variables that may be asked for; None: all may."""
        self._environment = environment
        self._allowed = allowed

    def __call__(self, path: str, key: str) -> str:
        if path:
            raise Unresolved(f"a variable of the environment has no path, {printable(path)!r}; write ${{env:NAME}}")
        if self._allowed is not None and not self._allowed.fullmatch(key):
            raise Unresolved(f"allowlist.pattern does not allow {printable(key)!r}")
        if key not in self._environment:
            raise Unresolved(f"the environment has no variable {printable(key)!r}")
        return self._environment[key]


def _text(path: str, allowed: Sequence[str] | None) -> str:
    """Return the text of a file.

    The story: Kubernetes mounts a secret as a link to a directory with a date in its name, and changes the link. So
    links are followed first, and the real path has to be allowed.
    """
    try:
        real = os.path.realpath(path)
        if allowed is not None and not any(_is_within(real, directory) for directory in allowed):
            raise Unresolved(f"{printable(path)} is not within allowed.paths, or a link leads out of them")
        # Without O_NONBLOCK the opening of a FIFO would wait for a writer, for ever.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Unresolved(f"{printable(path)} is not a plain file")
            content = file.read(FILE_MAX_BYTES + 1)
        if len(content) > FILE_MAX_BYTES:
            raise Unresolved(f"{printable(path)} is larger than {FILE_MAX_BYTES:,} bytes")
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise Unresolved(f"{printable(path)} is not text in UTF-8") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno is not None else "unreadable"
        raise Unresolved(f"cannot read {printable(path)}: {reason}") from None
    except ValueError:  # a NUL
        raise Unresolved(f"{printable(path)!r} is no file name") from None


def _is_within(real: str, allowed: str) -> bool:
    return os.path.commonpath([real, allowed]) == allowed


def read_providers(file: Layer, environment: Mapping[str, str], problems: list[str]) -> dict[str, Provider]:
    """Return the providers that a file names, by their names; what is wrong with them is added to the problems.

    Args:
        environment: of the process.
    """
    listed = file.get(PROVIDERS)
    if listed is None:
        return {}
    try:
        names = strings(listed.value)
    except BadValue as bad:
        problems.append(bad_value(listed, bad))
        return {}
    providers: dict[str, Provider] = {}
    for name in names:
        written = file.get(f"{PROVIDERS}.{name}.class")
        if written is None:
            way_out = f"write {PROVIDERS}.{printable(name)}.class = {_FILE}, or another of Kafka's three"
            problems.append(f"{named(listed)} names a provider without a class; {way_out}")
            continue
        try:
            providers[name] = _provider(written, f"{PROVIDERS}.{name}.param.", file, environment)
        except _BadSetting as bad:
            problems.append(bad_value(bad.entry, bad))
    return providers


class _BadSetting(BadValue):
    def __init__(self, entry: PropertyEntry, text: str) -> None:
        super().__init__(text)
        self.entry = entry


def _provider(written: PropertyEntry, parameters: str, file: Layer, environment: Mapping[str, str]) -> Provider:
    """Return the provider of a class; ``parameters`` is the prefix of the names of its parameters."""
    paths = file.get(f"{parameters}allowed.paths")
    class_name = java_trim(written.value)
    if class_name == _FILE:
        return FileProvider(_allowed_paths(paths))
    if class_name == _DIRECTORY:
        return DirectoryProvider(_allowed_paths(paths))
    if class_name == _ENVIRONMENT:
        return EnvironmentProvider(environment, _pattern(file.get(f"{parameters}allowlist.pattern")))
    raise _BadSetting(written, f"no provider that mm2py has; write {_FILE}, {_DIRECTORY} or {_ENVIRONMENT}")


def _allowed_paths(entry: PropertyEntry | None) -> tuple[str, ...] | None:
    if entry is None or not entry.value:
        return None
    paths = [java_trim(path) for path in entry.value.split(",")]
    if not all(os.path.isabs(path) and "\0" not in path and os.path.exists(path) for path in paths):
        raise _BadSetting(entry, "not a list of absolute paths that exist")
    return tuple(os.path.realpath(path) for path in paths)


def _pattern(entry: PropertyEntry | None) -> regex.Pattern[str] | None:
    if entry is None:
        return None
    try:
        return compile_java(entry.value)
    except NotTranslatable as error:
        raise _BadSetting(entry, f"not a pattern that mm2py has: {error}") from None
