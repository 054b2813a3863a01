"""How the web page is served: to browsers at ``/``, strictly, and without it all else works."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from mm2py.config.rest import Exposure
from mm2py_rest.built_page import BuiltPage
from mm2py_rest.routes.page import POLICY
from tests.fakes.rest_services import Guarded, guarded
from tests.unit.rest.test_access_matrix import token, write_users

pytestmark = pytest.mark.real_time

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
HTML = b'<!doctype html><script type="module" src="/page/index-D3adB33f.js"></script>'
SCRIPT = b"document.title = 'mm2py';" * 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    built = tmp_path / "page"
    built.mkdir()
    (built / "index.html").write_bytes(HTML)
    (built / "index-D3adB33f.js").write_bytes(SCRIPT)
    (tmp_path / "secret.js").write_bytes(b"not of the page")
    return built


@pytest.fixture
def worker(folder: Path) -> Guarded:
    return guarded(Exposure.EVERYONE, BuiltPage(folder))


def test_a_browser_gets_the_page_and_may_run_nothing_but_its_own_script(worker: Guarded) -> None:
    answer = worker.client().get("/", headers={"Accept": BROWSER})
    assert (answer.status_code, answer.content) == (200, HTML)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert "default-src 'none'" in POLICY and "unsafe" not in POLICY and "http" not in POLICY and "data:" not in POLICY
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "Accept" in answer.headers["vary"].split(", ")


JAVA = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"
"""The default of Java's HttpURLConnection."""


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "application/json",
        "",
        "text/*",
        "text/html;q=0,application/xhtml+xml",
        "text/plain;x=text/html",
        "application/xhtml+xml",
        JAVA,
    ],
)
def test_everyone_else_gets_what_connect_answers(worker: Guarded, accept: str) -> None:
    answer = worker.client().get("/", headers={"Accept": accept})
    assert set(answer.json()) == {"version", "commit", "kafka_cluster_id"}
    assert answer.headers["vary"] == "Accept"  # a cache between must not give one the other's


def test_a_browser_that_names_no_xhtml_says_that_it_wants_a_document(worker: Guarded) -> None:
    headers = {"Accept": "text/html, */*;q=0.8", "Sec-Fetch-Dest": "document"}
    assert worker.client().get("/", headers=headers).content == HTML


def test_head_is_answered_as_get_is(worker: Guarded) -> None:
    answer = worker.client().head("/", headers={"Accept": BROWSER})
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (
        200,
        b"",
        "text/html; charset=utf-8",
    )


def test_only_get_of_the_root_is_the_page(worker: Guarded) -> None:
    assert worker.client().post("/", json={}, headers={"Accept": BROWSER}).status_code == 405
    as_browser = worker.client().get("/connectors", headers={"Accept": BROWSER})
    assert as_browser.json() == worker.client().get("/connectors").json()


def test_a_file_whose_name_changes_with_its_content_is_kept_for_ever_and_the_page_never(worker: Guarded) -> None:
    answer = worker.client().get("/page/index-D3adB33f.js")
    assert (answer.status_code, answer.content) == (200, SCRIPT)
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert worker.client().get("/page").headers["cache-control"] == "no-store"
    assert worker.client().get("/page/index.html").status_code == 404


def test_files_are_compressed_for_those_who_take_it(worker: Guarded) -> None:
    plain = worker.client().get("/page/index-D3adB33f.js", headers={"Accept-Encoding": "identity"})
    zipped = worker.client().get("/page/index-D3adB33f.js", headers={"Accept-Encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert zipped.headers["content-encoding"] == "gzip"
    assert int(zipped.headers["content-length"]) == len(gzip.compress(SCRIPT, mtime=0)) < len(SCRIPT)
    assert zipped.content == plain.content == SCRIPT


@pytest.mark.parametrize(
    "name",
    [
        "../secret.js",
        "..%2fsecret.js",
        "%2e%2e/secret.js",
        "..%5csecret.js",
        "/etc/passwd",
        "secret.js",
        "",
        ".",
        "a" * 300,
    ],
)
def test_no_name_leads_out_of_the_folder(worker: Guarded, name: str) -> None:
    answer = worker.client().get(f"/page/{name}")
    assert answer.status_code in (400, 404) or answer.content == HTML
    assert b"not of the page" not in answer.content


def test_without_the_page_a_sentence_says_how_to_get_it_and_all_else_works(tmp_path: Path) -> None:
    client = guarded(Exposure.EVERYONE, BuiltPage(tmp_path / "never-built")).client()
    answer = client.get("/", headers={"Accept": BROWSER})
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/plain")
    assert "`make page`" in answer.text
    assert client.get("/page/index-D3adB33f.js").status_code == 404
    assert client.get("/").json()["commit"] == "unknown"
    assert client.get("/v1/flows").status_code == 200


def test_a_page_that_is_built_again_is_served_without_a_restart(worker: Guarded, folder: Path) -> None:
    client = worker.client()
    assert client.get("/page").content == HTML
    (folder / "index-D3adB33f.js").rename(folder / "index-C0ffee00.js")
    (folder / "index.html").write_bytes(HTML.replace(b"D3adB33f", b"C0ffee00"))
    os.utime(folder / "index.html", ns=(1, 1))
    assert b"C0ffee00" in client.get("/page").content
    assert client.get("/page/index-C0ffee00.js").content == SCRIPT
    assert client.get("/page/index-D3adB33f.js").status_code == 404


def test_a_page_that_is_only_half_written_is_not_taken(folder: Path) -> None:
    """pip and vite write one file after the other: the set was taken without the script, and kept."""
    page = BuiltPage(folder)
    script = folder / "index-D3adB33f.js"
    script.rename(folder / "later")
    assert page.file("index.html") is None
    (folder / "later").rename(script)
    found = page.file("index.html"), page.file("index-D3adB33f.js")
    assert [None if one is None else one.content for one in found] == [HTML, SCRIPT]


def test_where_users_are_asked_for_the_page_itself_takes_none_and_what_it_asks_for_does(
    folder: Path, tmp_path: Path
) -> None:
    worker = guarded(Exposure.USERS, BuiltPage(folder), users=write_users(tmp_path))
    client = worker.client()
    assert client.get("/", headers={"Accept": BROWSER}).content == HTML
    assert client.get("/page/index-D3adB33f.js").content == SCRIPT
    assert client.get("/", headers={"Accept": "application/json"}).status_code == 401
    assert client.get("/v1/flows", headers={"Accept": BROWSER}).status_code == 401
    for path in ("/page/../v1/flows", "/page/%2e%2e/v1/flows", "/page//v1/flows", "/pages", "/page%2fv1%2fflows"):
        assert client.get(path).status_code in (401, 404), path
    assert client.post("/page", json={}).status_code == 401
    allowed = client.get("/", headers={"Accept": "application/json", "Authorization": f"Bearer {token('reader')}"})
    assert allowed.status_code == 200


@pytest.mark.parametrize("exposure", [Exposure.HEALTH, Exposure.PROBES])
def test_a_listener_for_health_or_probes_serves_no_page(folder: Path, exposure: Exposure) -> None:
    client = guarded(exposure, BuiltPage(folder)).client()
    assert client.get("/", headers={"Accept": BROWSER}).status_code == 403
    assert client.get("/page/index-D3adB33f.js").status_code == 403


def test_the_page_is_refused_under_a_name_that_others_let_point_to_us(worker: Guarded) -> None:
    assert worker.client().get("/", headers={"Accept": BROWSER, "Host": "evil.example"}).status_code == 403
