"""The server of a Pod, with a metrics page of Triton whose requests take as long as the argument says, in seconds."""

from __future__ import annotations

import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RATE = 50.0  # requests per second
SECONDS = float(sys.argv[1])
STARTED = time.monotonic() - 60


def page() -> str:
    requests = round((time.monotonic() - STARTED) * RATE)
    computed = round(requests * SECONDS * 1e6)
    values = {
        "nv_inference_request_success": requests,
        "nv_inference_request_failure": 0,
        "nv_inference_count": requests,
        "nv_inference_exec_count": requests,
        "nv_inference_request_duration_us": computed + requests * 100,
        "nv_inference_queue_duration_us": requests * 50,
        "nv_inference_compute_input_duration_us": 0,
        "nv_inference_compute_infer_duration_us": computed,
        "nv_inference_compute_output_duration_us": 0,
    }
    lines = (f'# TYPE {name} counter\n{name}{{model="m",version="1"}} {value}\n' for name, value in values.items())
    return "".join(lines)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = page().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer((os.environ["POD_IP"], 8000), Handler).serve_forever()
