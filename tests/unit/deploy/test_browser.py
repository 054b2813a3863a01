"""What is missing for a browser is named, and the picture of the web page is there and small."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from deploy.local import browser
from deploy.local.errors import MissingTool
from deploy.local.screenshot import ADDRESS, BYTES_MOST, FILE

ROOT = Path(__file__).parents[3]


@pytest.fixture
def has_playwright(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.usefixtures("has_playwright")
def test_the_browser_of_the_machine_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = tmp_path / "chromium-browser"
    there.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert browser.chromium() == str(there)


@pytest.mark.usefixtures("has_playwright")
def test_a_machine_without_a_browser_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match=r"no Chromium here.*apt-get install chromium"):
        browser.chromium()


def test_an_environment_without_playwright_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingTool, match="make venv"):
        browser.chromium()


def test_the_picture_is_small_and_shown() -> None:
    assert FILE.read_bytes().startswith(b"\x89PNG")
    assert FILE.stat().st_size <= BYTES_MOST
    for page, name in (("README.md", "docs/page.png"), ("docs/page.md", "page.png")):
        assert f"]({name})" in (ROOT / page).read_text()


def test_the_address_of_the_page_is_found_in_what_the_demo_says() -> None:
    match = ADDRESS.search("http://127.0.0.1:8083/#once=aB-1_x.y\n")
    assert match is not None and match[0] == "http://127.0.0.1:8083/#once=aB-1_x.y"
