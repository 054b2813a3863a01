"""An OAuth server on loopback with the answers of a test, over TLS or in plain text."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers, content."""


def jwt(claims: object, signature: str = "") -> str:
    """Return a token without a signature."""

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part(claims)}.{signature}"


def given_token(token: str, **more: Any) -> Answer:
    """Return an answer with a token."""
    return 200, {}, json.dumps({"access_token": token, "token_type": "Bearer", **more}).encode()


@dataclass
class TokenServer:
    """The answers of the server, and the requests it has received."""

    answer: Callable[[], Answer]
    asked: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    url: str = ""


@contextmanager
def token_server(answer: Callable[[], Answer], tls: Path | None = None) -> Iterator[TokenServer]:
    """Serve at ``url``; ``tls`` is the file with key and certificate."""
    told = TokenServer(answer)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            told.asked.append((self.path, dict(self.headers), body))
            status, headers, content = told.answer()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815  (named by the base class)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    told.url = f"http{'s' if tls is not None else ''}://127.0.0.1:{server.server_address[1]}/token?a=b"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
