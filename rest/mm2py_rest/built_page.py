"""The web page, as ``make page`` has built it beside this module: one HTML file, and files with a hash in their names.

Its sources are in ``rest/page``. MirrorMaker 2 has no page.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "page"
INDEX: Final = "index.html"
NOT_BUILT: Final = (
    "The web page is not built here: run `make page` in the checkout that mm2py was installed from, or install a wheel"
    " of mm2py that has it; REST answers without it."
)
_NAMED: Final = re.compile(rb'"/page/([^"]+)"')
"""The files that the index names."""
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of the page."""

    content: bytes
    zipped: bytes
    """The same, compressed with gzip."""
    media_type: str


class BuiltPage:
    """The files of the page, read again when the page was built again."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: Mapping[str, PageFile] = {}
        self._built_at_ns = 0

    def file(self, name: str) -> PageFile | None:
        """Return a file by its name; None: there is none, or the page is not built.

        A name is only compared with the names in the folder, so that it leads nowhere else.
        """
        try:
            built_at_ns = (self._folder / INDEX).stat().st_mtime_ns
            if built_at_ns != self._built_at_ns:
                files = {one.name: _read(one) for one in self._folder.iterdir() if one.suffix in _TYPES}
                is_whole = all(name.decode() in files for name in _NAMED.findall(files[INDEX].content))
                self._files, self._built_at_ns = (files, built_at_ns) if is_whole else ({}, 0)
        except (OSError, KeyError):  # it is not built, or is just being built
            self._files, self._built_at_ns = {}, 0
        return self._files.get(name)


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    return PageFile(content, gzip.compress(content, mtime=0), _TYPES[path.suffix])
