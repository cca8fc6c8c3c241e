"""A service that a model asks before it computes: `python -m latdoctor.lab.real.feature_service PORT`.

`GET /` answers at once with a few numbers. Only the standard library, so that it is no load of its own.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_ANSWER = b'{"features": [0.25, 0.5, 0.75]}\n'


class FeatureHandler(BaseHTTPRequestHandler):
    """Answers every request alike, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(_ANSWER)))
        self.end_headers()
        self.wfile.write(_ANSWER)

    def log_message(self, *_: object) -> None:
        """No access log."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), FeatureHandler).serve_forever()
