"""A server with an admin interface, in this process: as much of one as a plan reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONFIG = {"batching": {"scheduler": "long-alone"}, "governance": {"lanes": False}}
KNOBS = {"batching.scheduler": True, "governance.lanes": True}


@dataclass
class Admin:
    """`token`: required, else 401; `tokens`: those received. `lacks`: no admin interface."""

    port: int = 0
    token: str = ""
    lacks: bool = False
    tokens: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, path: str, authorization: str) -> tuple[int, object]:
        if path == "/metrics":
            return 200, {}
        self.tokens.append(authorization.removeprefix("Bearer "))
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"detail": "who are you?"}
        known: dict[str, object] = {} if self.lacks else {"/admin/config": CONFIG, "/admin/knobs": KNOBS}
        return (200, known[path]) if path in known else (404, {})


@contextmanager
def admin(token: str = "", *, lacks: bool = False) -> Iterator[Admin]:
    made = Admin(token=token, lacks=lacks)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, said = made.answer(self.path, self.headers.get("authorization", ""))
            body = json.dumps(said).encode()
            self.send_response(status)
            for name, value in (("etag", '"1"'), ("content-type", "application/json"), ("content-length", len(body))):
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
