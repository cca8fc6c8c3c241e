"""A replica for the router's tests: `stub_replica.py NAME PORT [stubborn|never-ready]`.

`POST /v1/echo` says who answered and what arrived · `/v1/hold` is never answered · `/v1/busy` is a 429 ·
`POST /turn/ready`, `/turn/unready` change what `/readyz` says · `/gone` counts the clients that left `/v1/hold`.
`PATCH /admin/config` changes the version of the model, except to one that begins with `refused` · `/v1/intent` is
answered as by that version: `slow…` takes its time, `failing…` answers 503 to every third, `wrong…` has wrong intents,
`unsure…` a low score.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME, PORT, MODES = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
state = {"ready": "never-ready" not in MODES, "gone": 0, "version": "v1", "asked": 0}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        if self.path == "/readyz":
            self.answer(200 if state["ready"] else 503, {"model_version": state["version"]})
        elif self.path.startswith("/turn/"):
            state["ready"] = self.path == "/turn/ready"
            self.answer(200, {})
        elif self.path == "/gone":
            self.answer(200, {"gone": state["gone"]})
        elif self.path.startswith("/v1/hold"):
            self.connection.recv(1)  # returns when the client leaves
            state["gone"] += 1
            self.close_connection = True
        elif self.path == "/v1/intent":
            self.intent(str(state["version"]))
        elif self.path == "/v1/busy":
            self.answer(429, {"error": "busy"}, ("Retry-After", "7"))
        else:
            headers = {name.lower(): value for name, value in self.headers.items()}
            said = {"name": NAME, "pid": os.getpid(), "path": self.path, "body": body.decode(), "headers": headers}
            self.answer(200, said, ("X-Own", "yes"), ("Keep-Alive", "timeout=9"))

    do_POST = do_GET  # noqa: N815 (http.server's own naming)

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        version = body["model"]["version"]
        if version.startswith("refused"):
            self.answer(409, {"error": "wrong-checksum", "detail": "the file is damaged"})
        elif self.headers["authorization"] != "Bearer secret":
            self.answer(401, {"error": "wrong-token"})
        else:
            state["version"] = version
            self.answer(200, {})

    def intent(self, version: str) -> None:
        state["asked"] = int(state["asked"]) + 1
        if version.startswith("slow"):
            time.sleep(0.3)
        if version.startswith("failing") and int(state["asked"]) % 3 == 0:
            self.answer(503, {"error": "worker-lost"})
            return
        intent = "wrong" if version.startswith("wrong") else "right"
        score = 0.1 if version.startswith("unsure") else 0.9
        said = {"name": NAME, "intent": intent, "score": score, "model_version": version, "source": "model"}
        self.answer(200, said, ("X-Model-Version", version))

    def answer(self, status: int, content: object, *headers: tuple[str, str]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for header in (("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers):
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's own naming)
        """Says nothing."""


if "stubborn" in MODES:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(f"{NAME} starts", flush=True)
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
