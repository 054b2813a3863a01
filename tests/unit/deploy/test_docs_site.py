"""The documentation as a site: its navigation has every page, links work as on the code's host, nothing asks elsewhere.

MkDocs is in an environment of its own, so what needs it is slow; the rest holds for the pages as they are.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.packages.docs_site import anchor_of, files_beside, links_in, loads_in, loads_of, source_of, target_of

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
TEXT = (ROOT / "mkdocs.yml").read_text()
SETTINGS: dict[str, Any] = yaml.safe_load(TEXT)
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
LISTED_BY = {"checks/": "checks/README.md", "runbooks/": "runbooks.md", "decisions/": "decisions/README.md"}


def pages_of(entry: Any) -> Iterator[str]:
    """Return the pages of an entry of the navigation and of all entries below it."""
    if isinstance(entry, str):
        yield entry
    else:
        for one in entry.values() if isinstance(entry, dict) else entry:
            yield from pages_of(one)


IN_NAVIGATION = list(pages_of(SETTINGS["nav"]))


def is_left_out(page: str) -> bool:
    """Return whether a page is not in the navigation on purpose."""
    patterns = SETTINGS["not_in_nav"].split()
    return any(fnmatchcase(f"/{page}", f"{one}*" if one.endswith("/") else one) for one in patterns)


def anchors_of(text: str) -> set[str]:
    """Return the anchors of a page: its headings, and those that it names itself."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    shown = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"<[^>]*>|[`*]", "", one)) for one in headings]
    return {*map(anchor_of, shown), *re.findall(r'\bid="([^"]+)"', text)}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_in_the_navigation_or_left_out_on_purpose(page: str) -> None:
    assert page in IN_NAVIGATION or is_left_out(page), "add it to nav of mkdocs.yml, and to docs/README.md"


def test_the_navigation_has_only_pages_that_are_there_and_each_once() -> None:
    assert [one for one, count in Counter(IN_NAVIGATION).items() if count > 1] == []
    assert [one for one in IN_NAVIGATION if not (ROOT / source_of(one)).is_file()] == []


def test_the_navigation_is_cut_by_what_a_reader_wants() -> None:
    assert [name for part in SETTINGS["nav"] for name in part] == ["Start", "Do", "Look up", "Understand"]


@pytest.mark.parametrize(("folder", "listing"), LISTED_BY.items())
def test_what_is_left_out_is_on_the_page_that_lists_it(folder: str, listing: str) -> None:
    pages = {page for page in PAGES if page.startswith(folder)} - {listing}
    assert pages - links_in(listing) == set()


def test_the_first_page_has_all_that_the_navigation_has() -> None:
    """Who reads the pages without the site has that page instead."""
    assert set(IN_NAVIGATION) - links_in("README.md") == {"README.md"}


def test_the_settings_of_the_site_name_no_host_and_no_service() -> None:
    assert re.findall(r"\w+://|\bwww\.|\.(?:com|io|org|net|dev)\b", TEXT) == []
    assert SETTINGS["theme"]["font"] is False, "else the theme asks a host for fonts"
    assert not {"repo_url", "site_url", "extra", "extra_css", "extra_javascript"} & SETTINGS.keys()
    assert set(SETTINGS["plugins"]) == {"search"}


@pytest.mark.parametrize("page", PAGES)
def test_a_link_leads_to_a_file(page: str) -> None:
    assert [one for one in links_in(page) if not (ROOT / source_of(one)).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_link_to_a_place_on_a_page_finds_it(page: str) -> None:
    text = (DOCS / page).read_text()
    for link, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text):
        linked = ROOT / source_of(target_of(page, link)) if link else DOCS / page
        assert anchor in anchors_of(linked.read_text()), f"{link}#{anchor}"


def test_a_heading_has_the_anchor_that_code_hosts_give_it() -> None:
    assert anchor_of("Is it safe to fail over?") == "is-it-safe-to-fail-over"
    assert anchor_of("For programs: --json") == "for-programs---json"


def test_links_out_of_docs_and_to_folders_lead_to_files_of_the_site() -> None:
    assert target_of("sites.md", "../deploy/sites/mm2.properties") == "repository/deploy/sites/mm2.properties"
    assert target_of("checks/MM0001.md", "../status.md") == "status.md"
    assert target_of("metrics.md", "runbooks") == "runbooks.md"
    assert target_of("metrics.md", "../deploy/grafana") == "repository/deploy/grafana/README.md"
    assert target_of("repository/CHANGELOG.md", "docs/rights.md") == "rights.md"
    beside = files_beside(PAGES)
    assert "repository/CHANGELOG.md" in beside and "repository/deploy/grafana/alerts.yaml" in beside
    assert [one for one in beside if not one.startswith("repository/")] == []


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://host.example/a.js"></script>',
        '<link rel="stylesheet" href="//host.example/a.css">',
        '<link rel="preconnect" href="https://host.example">',
        '<img src="https://host.example/a.png">',
        "<p style=\"background: url('https://host.example/a.png')\">",
        "<style>@import 'https://host.example/a.css';</style>",
    ],
)
def test_what_a_page_loads_from_another_host_is_found(html: str, tmp_path: Path) -> None:
    assert len(loads_of(html)) == 1
    (tmp_path / "index.html").write_text(html)
    (line,) = loads_in(tmp_path)
    assert line.startswith("index.html loads ")


def test_a_link_that_a_reader_has_to_click_loads_nothing() -> None:
    assert loads_of('<a href="https://host.example">there</a><img src="page.png"><script src="../a.js"></script>') == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_site_is_built_and_asks_no_other_host(tmp_path: Path) -> None:
    command = ["make", "--no-print-directory", "docs", f"SITE={tmp_path / 'site'}"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert "they load nothing from other hosts" in done.stdout
    assert (tmp_path / "site" / "repository" / "deploy" / "sites" / "mm2.properties").exists()
