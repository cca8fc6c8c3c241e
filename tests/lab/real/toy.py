"""A folder of installed servers with one small server, which is started like a real one."""

from __future__ import annotations

import sys
from pathlib import Path

from latdoctor.lab.real.server_definition import ServerDefinition
from latdoctor.load.request_template import RequestTemplate

_PROGRAM = """#!{python}
import http.server, os, pathlib, subprocess, sys
port = int(sys.argv[1])
log = pathlib.Path(__file__).parent / f"log-{{port}}.txt"
limit = os.environ.get("LIMIT", "4")
log.write_text(f"limit {{limit}}\\n")
# A process of its own that computes, as servers with an engine have.
engine = subprocess.Popen([sys.executable, "-c", "import time\\nwhile True: time.sleep(1)", "toy-engine"])
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def reply(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_GET(self):
        self.reply(f"# TYPE toy_limit gauge\\ntoy_limit {{limit}}\\n")
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reply("{{}}")
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""

TOY = ServerDefinition(
    name="toy",
    title="A toy",
    start=("start-toy", "{port}"),
    ready="http://127.0.0.1:{port}/ready",
    metrics=("http://127.0.0.1:{port}/metrics",),
    log="log-{port}.txt",
    install="nothing to install",
    environment={"LIMIT": "4"},
    engine="toy-engine",
    request=RequestTemplate("/answer", '{"text": "$PROMPT"}'),
)


def installed(folder: Path) -> Path:
    """`folder` with the program of the toy."""
    program = folder / "start-toy"
    program.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    return folder
