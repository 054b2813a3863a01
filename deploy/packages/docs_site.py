"""The hooks of ``mkdocs.yml``, and a look at the built site: ``make docs``.

Pages are written for readers of the repository: they link to files beside ``docs`` and to folders, and to anchors as
code hosts make them. The hooks make the same links work on the site. ``python -m deploy.packages.docs_site FOLDER``
names what a built page would load from another host, and exits with 1 if there is anything. Both run in
``.venv-packages``; nothing here imports MkDocs before it is there. MirrorMaker 2 has no counterpart.
"""

from __future__ import annotations

import posixpath
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
BESIDE: Final = "repository"
"""The folder of the site for files that are not below ``docs``."""
NOT_SEARCHED: Final = ("results/",)
LINK: Final = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")
"""The path in a link to another file: ``page.md`` of ``[text](page.md#anchor)``."""
LOADS: Final = frozenset(
    {
        ("script", "src"),
        ("link", "href"),
        ("img", "src"),
        ("iframe", "src"),
        ("source", "src"),
        ("video", "src"),
        ("audio", "src"),
        ("embed", "src"),
        ("object", "data"),
        ("use", "href"),
    }
)
"""Tags whose attribute makes a browser ask for an address without a click."""
FROM_A_HOST: Final = re.compile(r"(?:https?:)?//")
STYLE_LOADS: Final = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)")


def anchor_of(heading: str, separator: str = "-") -> str:
    """Return the anchor of a heading's text, as code hosts make it."""
    text = unicodedata.normalize("NFC", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", separator)


def source_of(uri: str) -> str:
    """Return where in the repository a file of the site comes from."""
    return uri.removeprefix(f"{BESIDE}/") if uri.startswith(f"{BESIDE}/") else f"docs/{uri}"


def uri_of(path: str) -> str:
    """Return where on the site a file of the repository is."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{BESIDE}/{path}"


def target_of(uri: str, link: str) -> str:
    """Return where on the site a link of a page leads. A link to a folder leads to the page that lists it."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source_of(uri)), link))
    if (ROOT / path).is_dir():
        listing = f"{path}/README.md"
        path = listing if (ROOT / listing).exists() else f"{path}.md"
    return uri_of(path)


def links_in(uri: str) -> set[str]:
    """Return where on the site the links of a page lead."""
    return {target_of(uri, link) for link in LINK.findall((ROOT / source_of(uri)).read_text())}


def files_beside(pages: Iterable[str]) -> list[str]:
    """Return the files of the site that are not below ``docs``: pages link to them, or such files among each other."""
    found: set[str] = set()
    new = set(pages)
    while new:
        linked = {target for uri in new if uri.endswith(".md") for target in links_in(uri)}
        new = {one for one in linked if one.startswith(f"{BESIDE}/") and (ROOT / source_of(one)).is_file()} - found
        found |= new
    return sorted(found)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make anchors as code hosts do."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor_of
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files beside ``docs`` that pages link to."""
    from mkdocs.structure.files import File

    pages = [file.src_uri for file in files.documentation_pages()]
    for uri in files_beside([*pages, f"{BESIDE}/CHANGELOG.md"]):
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source_of(uri))))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page to the site's files, and keep pages out of the search that are not for readers."""
    uri = page.file.src_uri
    if uri.startswith(NOT_SEARCHED):
        page.meta["search"] = {"exclude": True}
    return LINK.sub(lambda link: posixpath.relpath(target_of(uri, link[1]), posixpath.dirname(uri) or "."), markdown)


class _Loads(HTMLParser):
    """Collects the addresses on other hosts that a browser would ask for while it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "link" and named.get("rel") == "canonical":
            return
        for name, value in attrs:
            if (tag, name) in LOADS and value and FROM_A_HOST.match(value):
                self.found.append(value)
            elif name == "style" and value:
                self.found += STYLE_LOADS.findall(value)


def loads_of(html: str) -> list[str]:
    """Return the addresses on other hosts that a page loads."""
    loads = _Loads()
    loads.feed(html)
    styles = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    return [*loads.found, *STYLE_LOADS.findall("\n".join(styles))]


def loads_in(site: Path) -> Iterator[str]:
    """Return a line for each address on another host that a file of the site loads."""
    for path in sorted(site.rglob("*")):
        found = []
        if path.suffix == ".html":
            found = loads_of(path.read_text())
        elif path.suffix == ".css":
            found = STYLE_LOADS.findall(path.read_text())
        yield from (f"{path.relative_to(site)} loads {one}" for one in found)


def main(arguments: Sequence[str]) -> int:
    """Look at a built site. Returns the exit code."""
    site = Path(arguments[0])
    pages = sum(1 for _ in site.rglob("*.html"))
    found = list(loads_in(site))
    for line in found:
        print(line)
    is_good = pages > 0 and not found
    print(f"{pages} pages in {site}{'; they load nothing from other hosts' if is_good else ''}.")
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
