"""The token file: one for all workers of a user, whole or not there, and refused where another user may know it."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mm2py.rest_token import TokenUnusable, read_token, token_at, token_path
from mm2py.secret import HIDDEN

ROOT = Path(__file__).parents[2]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("named", "environment", "path"),
    [
        ("/etc/t", {"RUNTIME_DIRECTORY": "/run/mm2py"}, "/etc/t"),
        (None, {"RUNTIME_DIRECTORY": "/run/mm2py", "XDG_STATE_HOME": "/s"}, "/run/mm2py/rest.token"),
        (None, {"RUNTIME_DIRECTORY": "/run/mm2py:/run/other"}, "/run/mm2py/rest.token"),
        (None, {"XDG_STATE_HOME": "/s", "HOME": "/home/ann"}, "/s/mm2py/rest.token"),
        (None, {"HOME": "/home/ann"}, "/home/ann/.local/state/mm2py/rest.token"),
        (None, {"RUNTIME_DIRECTORY": "", "XDG_STATE_HOME": "s", "HOME": "/h"}, "/h/.local/state/mm2py/rest.token"),
    ],
)
def test_the_file_is_where_the_settings_say_else_in_the_services_folder_else_in_the_users(
    named: str | None, environment: dict[str, str], path: str
) -> None:
    assert token_path(Path(named) if named else None, environment) == Path(path)


@pytest.mark.parametrize("page", ["docs/start.md", "docs/rest-access.md"])
@pytest.mark.parametrize(
    "names", [["RUNTIME_DIRECTORY", "XDG_STATE_HOME", "HOME"], ["XDG_STATE_HOME", "HOME"], ["HOME"]]
)
def test_the_shell_function_of_the_pages_reads_the_file_that_a_worker_of_this_shell_has_made(
    page: str, names: list[str], tmp_path: Path
) -> None:
    """The story: it knew one place, so each change was refused where the worker had made its token in another one."""
    environment = {name: str(tmp_path / name) for name in names}
    token = token_at(token_path(None, environment)).reveal()
    (function,) = re.findall(r"^ +(token\(\) .*)$", (ROOT / page).read_text(), re.MULTILINE)
    command = ["sh", "-c", f"{function}\ntoken"]
    done = subprocess.run(command, env={**environment, "PATH": "/usr/bin:/bin"}, capture_output=True, check=True)
    assert done.stdout.decode() == f"Authorization: Bearer {token}\n"


def test_where_there_is_no_place_the_way_is_named() -> None:
    with pytest.raises(TokenUnusable, match=r"HOME is not set\. Set rest\.token\.file to"):
        token_path(None, {})


def test_the_first_worker_makes_the_token_for_its_user_alone_and_the_others_read_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "mm2py" / "rest.token"
    with pytest.raises(FileNotFoundError):
        read_token(path)
    made = token_at(path)
    assert len(made.reveal()) == 64
    assert token_at(path) == read_token(path) == made
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert path.read_text() == made.reveal() + "\n"
    assert str(made) == HIDDEN


def test_workers_that_start_at_once_agree_on_one_token_and_leave_no_draft(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / str(number) / "rest.token"
        with ThreadPoolExecutor(8) as workers:
            found = list(workers.map(token_at, [path] * 16))
        assert set(found) == {read_token(path)}
        assert [one.name for one in path.parent.iterdir()] == ["rest.token"]


def test_a_name_that_another_worker_has_just_taken_is_not_taken_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one links its file between our look and our link."""
    path, link = tmp_path / "rest.token", os.link

    def late(draft: Path, name: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        theirs.append(token_at(path))
        link(draft, name)

    theirs: list[object] = []
    monkeypatch.setattr(os, "link", late)
    assert token_at(path) == theirs[0]
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_is_there_only_with_the_whole_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, link = tmp_path / "rest.token", os.link
    seen = []

    def look(draft: Path, name: Path) -> None:
        seen.append((name.exists(), len(draft.read_bytes())))
        link(draft, name)

    monkeypatch.setattr(os, "link", look)
    token_at(path)
    assert seen == [(False, 65)]


def test_a_deleted_token_is_made_anew_and_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "rest.token"
    first = token_at(path)
    path.unlink()
    assert token_at(path) != first


def test_a_symbolic_link_is_refused_also_to_a_good_token(tmp_path: Path) -> None:
    token_at(tmp_path / "good")
    path = tmp_path / "rest.token"
    path.symlink_to(tmp_path / "good")
    refused(path, "symbolic link")


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o606])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "rest.token"
    token_at(path)
    path.chmod(bits)
    refused(path, "Other users may read or write")


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rest.token"
    token_at(path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    refused(path, "belongs to another user")


@pytest.mark.parametrize("content", ["", "short\n", "x" * 64 + "\nmore\n", "x" * 2000, "x" * 31])
def test_what_is_no_token_is_refused_and_not_repeated(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rest.token"
    path.write_text(content)
    path.chmod(0o600)
    assert "xxx" not in refused(path, "holds no token")


def test_a_pipe_and_a_folder_hold_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    refused(tmp_path / "pipe", "is not a file")
    (tmp_path / "folder").mkdir(0o700)
    refused(tmp_path / "folder", "is not a file")


def test_a_folder_to_which_others_may_write_is_refused_except_where_they_cannot_replace_files(tmp_path: Path) -> None:
    path = tmp_path / "open" / "rest.token"
    path.parent.mkdir()
    path.parent.chmod(0o777)
    refused(path, "may replace files in")
    path.parent.chmod(0o1777)
    assert token_at(path)


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(tmp_path / "file" / "rest.token", "cannot be used: Not a directory")


def refused(path: Path, why: str) -> str:
    with pytest.raises(TokenUnusable, match=why) as raised:
        token_at(path)
    assert str(path.parent) in str(raised.value)
    assert "Delete it" in raised.value.remedy or "Set rest.token.file" in raised.value.remedy
    return str(raised.value)
