"""A service in a process of its own: two knobs behind /admin/config with an ETag, as the reference server has them.

Usage: python -m tests.crash.service      (writes its address, and serves until its stdin is closed)
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONFIG: dict[str, dict[str, Any]] = {"batching": {"scheduler": "long-alone"}, "governance": {"lanes": False}}
KNOBS = {"batching.scheduler": True, "governance.lanes": True}
LOCK = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """`X-Reset: 1` on a PATCH puts everything back without asking: for the test between two kills."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, KNOBS if self.path == "/admin/knobs" else CONFIG)

    def do_PATCH(self) -> None:
        patch = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with LOCK:
            if self.headers["if-match"] not in (etag(), "*"):
                self._answer(412, {"error": "changed-meanwhile"})
                return
            for group, knobs in patch.items():
                CONFIG[group].update(knobs)
            self._answer(200, CONFIG)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("etag", etag())
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def etag() -> str:
    return '"' + hashlib.sha256(json.dumps(CONFIG, sort_keys=True).encode()).hexdigest()[:16] + '"'


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
