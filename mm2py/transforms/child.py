"""Runs in a process of its own: calls the function of a user for each record that the worker sends.

It imports nothing of mm2py, so that the user's module sees a plain Python. It gets no settings and no secrets. It ends
with the worker, also if the worker was killed. A message is its length in four bytes, and JSON in UTF-8, with bytes as
text of ISO 8859-1: what the worker reads of this process can be wrong, and do no more harm than that.

The worker sends (topic, partition, [(offset, timestamp_ms, key, value, headers), ...]), and gets the number of records
that came out, a list of (timestamp_ms, key, value, headers) or None for each of them, and why the next one did not.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import json
import os
import sys
import threading
import time
from typing import Any, BinaryIO, NamedTuple

PARENT_LOOK_S = 1.0
TIMESTAMP_MAX = (1 << 63) - 1


class GivenRecord(NamedTuple):
    """What a function gets and returns: ``record._replace(value=b"...")``; None leaves the record out."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def main(module: str, name: str, source_sha256: str, memory_max_bytes: int) -> None:
    """Serve until the worker closes the pipe."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints must not come between the answers
    sys.stdout = sys.stderr
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _limit_memory(memory_max_bytes)
    function, why = _load(module, name, source_sha256)
    _send(answers, why)
    while function is not None and (request := _receive(requests)) is not None:
        _send(answers, _serve(function, module, *request))


def _serve(function: Any, module: str, topic: str, partition: int, records: list[Any]) -> tuple[list[Any], str]:
    results: list[Any] = []
    for offset, timestamp_ms, key, value, headers in records:
        given = GivenRecord(topic, partition, offset, timestamp_ms, bytes_of(key), bytes_of(value), pairs_of(headers))
        try:
            found = function(given)
        except BaseException as error:
            return results, f"It raised {type(error).__name__}{_line_of(error, module)}."
        why = _why_no_record(given, found)
        if why:
            return results, f"It returned {why}."
        results.append(found and (found[3], text_of(found[4]), text_of(found[5]), texts_of(found[6])))
    return results, ""


def _why_no_record(given: GivenRecord, found: Any) -> str:
    """Return what is wrong with a result, and nothing of its content; empty: nothing is."""
    if found is None:
        return ""
    if not isinstance(found, tuple) or len(found) != len(given):
        return f"a {type(found).__name__} and no record; return record._replace(...), or None"
    if tuple(found[:3]) != given[:3]:
        return "a record of another topic, partition or offset"
    _, _, _, timestamp_ms, key, value, headers = found
    is_same = timestamp_ms == given.timestamp_ms
    if type(timestamp_ms) is not int or not (is_same or -1 <= timestamp_ms <= TIMESTAMP_MAX):
        return "a timestamp that is no number of milliseconds"
    for what, data in (("key", key), ("value", value)):
        if data is not None and type(data) is not bytes:
            return f"a {what} of {type(data).__name__}; it must be bytes or None"
    if not isinstance(headers, (list, tuple)):
        return "headers that are no list"
    for header in headers:
        if not isinstance(header, (list, tuple)) or len(header) != 2 or type(header[0]) is not str:
            return "a header that is no pair of a name and bytes"
        if header[1] is not None and type(header[1]) is not bytes:
            return f"a header of {type(header[1]).__name__}; it must be bytes or None"
        try:
            header[0].encode("utf-8", "surrogateescape")
        except UnicodeError:
            return "the name of a header that is no text"
    return ""


def _load(module: str, name: str, source_sha256: str) -> tuple[Any, str]:
    """Return the function, or why there is none."""
    try:
        with open(module, "rb") as file:
            source = file.read()
        if hashlib.sha256(source).hexdigest() != source_sha256:
            return None, f"{module} has changed since the worker started: restart all workers of the flow"
        sys.path.insert(0, os.path.dirname(module))
        loader = _ReadSource(module, source)
        spec = importlib.util.spec_from_loader("mm2py_transform", loader, origin=module)
        assert spec is not None  # noqa: S101  (it is made of a loader)
        made = importlib.util.module_from_spec(spec)
        loader.exec_module(made)
    except BaseException as error:
        return None, f"{module} cannot be loaded: it raised {type(error).__name__}{_line_of(error, module)}"
    function = getattr(made, name, None)
    return (function, "") if callable(function) else (None, f"{module} has no function {name}")


class _ReadSource(importlib.abc.ExecutionLoader):
    """Runs the source that was read and compared, whatever the file holds by now."""

    def __init__(self, module: str, source: bytes) -> None:
        self._module = module
        self._source = source

    def get_filename(self, fullname: str) -> str:
        return self._module

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._source)


def text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def texts_of(headers: Any) -> list[tuple[str, str | None]]:
    return [(name, text_of(value)) for name, value in headers]


def pairs_of(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, bytes_of(value)) for name, value in headers)


def encoded(message: Any) -> bytes:
    """Return a message with its length before it. Names of headers may hold halves of UTF-16 characters."""
    data = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(data).to_bytes(4, "big") + data


def decoded(data: bytes) -> Any:
    """Raises: ValueError."""
    return json.loads(data.decode("utf-8", "surrogatepass"))


def _line_of(error: BaseException, module: str) -> str:
    """Return where in the user's module it was raised. The message is left away: it may have content of a record."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == module:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" at line {line} of {module}" if line else ""


def _limit_memory(memory_max_bytes: int) -> None:
    try:
        import resource  # noqa: PLC0415  (not on every platform)
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory_max_bytes, memory_max_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_LOOK_S)
    os._exit(1)


def _send(pipe: BinaryIO, message: Any) -> None:
    pipe.write(encoded(message))
    pipe.flush()


def _receive(pipe: BinaryIO) -> Any:
    size = pipe.read(4)
    return decoded(pipe.read(int.from_bytes(size, "big"))) if len(size) == 4 else None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
