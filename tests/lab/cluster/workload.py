"""The server of a test Pod on POD_IP:8000: /healthz, POST, and what its arguments say.

`unhealthy-after=N`: /healthz fails after N requests; `memory=N`: takes N MiB; `end-file=PATH`: writes it on SIGTERM;
`seconds=N`: takes so long to answer a POST; `busy=1`: computes all the time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

options = dict(one.split("=", 1) for one in sys.argv[1:])
answered = 0
held = b"x" * (int(options.get("memory", "0")) << 20)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        global answered  # noqa: PLW0603 (one process, one thread)
        answered += 1
        healthy = answered <= int(options.get("unhealthy-after", "1000000000"))
        body = f"{os.environ['POD_NAME']} {os.environ.get('VERSION', '')}".encode()
        self.send_response(200 if healthy else 500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(float(options.get("seconds", "0")))
        body = json.dumps({"request_id": self.headers.get("X-Request-Id")}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def end(*_: object) -> None:
    if "end-file" in options:
        with Path(options["end-file"]).open("a") as file:
            file.write("terminated\n")
    sys.exit(0)


signal.signal(signal.SIGTERM, end)


def compute() -> None:
    while True:
        pass


if "busy" in options:
    threading.Thread(target=compute, daemon=True).start()


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # else a busy machine drops connections, and clients wait seconds to try again


Server((os.environ["POD_IP"], 8000), Handler).serve_forever()
