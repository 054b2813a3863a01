"""Which code looks at batches: the compiled core where it is installed, of the same version, and not turned off."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mm2py import __version__
from mm2py.compiled_core import CHOICE, Core, CoreRequired, choose
from mm2py.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = {name: print for name in vars(Core) if not name.startswith("_")}
CORE = SimpleNamespace(__version__=__version__, **FUNCTIONS)


def installed(module: Any) -> Any:
    def load(name: str) -> Any:
        assert name == "mm2py_native"
        if isinstance(module, Exception):
            raise module
        return module

    return load


@pytest.mark.parametrize("wish", ["", "1", "require"])
def test_an_installed_core_of_the_same_version_is_used(wish: str) -> None:
    choice = choose({"MM2PY_NATIVE": wish}, installed(CORE))
    assert choice.core is CORE
    assert (choice.why_not, str(choice)) == ("", "with the compiled core")


NOT_USED = {
    "mm2py-native is not installed": ModuleNotFoundError("No module named 'mm2py_native'"),
    "mm2py-native cannot be loaded (wrong ELF class)": ImportError("wrong ELF class"),
    f"mm2py-native is of version 0.0.9, mm2py of {__version__}": SimpleNamespace(__version__="0.0.9"),
    f"mm2py-native is of version unknown, mm2py of {__version__}": SimpleNamespace(),
    "mm2py-native was built before and has no changed_checksum": SimpleNamespace(
        __version__=__version__, **{name: print for name in FUNCTIONS if name != "changed_checksum"}
    ),
}


@pytest.mark.parametrize("why", NOT_USED)
def test_without_a_core_that_can_be_used_python_does_it_and_says_why(why: str) -> None:
    choice = choose({}, installed(NOT_USED[why]))
    assert choice.core is None
    assert str(choice) == f"without the compiled core: {why}"


@pytest.mark.parametrize("why", NOT_USED)
def test_a_core_that_is_required_and_cannot_be_used_is_an_error(why: str) -> None:
    with pytest.raises(CoreRequired, match=rf"'require', but {why[:30]}.*Install mm2py-native {__version__}, or unset"):
        choose({"MM2PY_NATIVE": "require"}, installed(NOT_USED[why]))


def test_the_core_can_be_turned_off() -> None:
    choice = choose({"MM2PY_NATIVE": "0"}, installed(CORE))
    assert choice.core is None
    assert str(choice) == "without the compiled core: MM2PY_NATIVE=0"


def test_a_wish_that_is_not_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="Set MM2PY_NATIVE to 0, 1 or require"):
        choose({"MM2PY_NATIVE": "off"}, installed(CORE))


def test_the_crate_has_the_version_of_mm2py() -> None:
    crate = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text())
    assert crate["package"]["version"] == __version__
    for name, wanted in crate["dependencies"].items():
        version = wanted if isinstance(wanted, str) else wanted["version"]
        assert version.startswith("="), f"{name} is not pinned"


def mm2py(wish: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mm2py", *arguments],
        cwd=ROOT,
        env={**os.environ, "MM2PY_NATIVE": wish},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_version_says_which_code_runs() -> None:
    assert mm2py("0", "--version").stdout == f"mm2py {__version__}, without the compiled core: MM2PY_NATIVE=0\n"
    assert mm2py(os.environ.get("MM2PY_NATIVE", ""), "--version").stdout == f"mm2py {__version__}, {CHOICE}\n"


def test_a_wrong_wish_ends_the_command_with_one_sentence() -> None:
    done = mm2py("off", "--version")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mm2py: MM2PY_NATIVE is 'off'. Set MM2PY_NATIVE to 0, 1 or require, or unset it.\n"
