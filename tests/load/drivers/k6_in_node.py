"""Runs a k6 script in Node, with stand-ins for k6's modules: what it sends and records, without k6."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.load.drivers.programs import node_program

MODULES = {
    "http.js": """
export default {
  post(url, body, params) {
    const state = globalThis.k6;
    const answer = state.orders.answers[Math.min(state.sent.length, state.orders.answers.length - 1)];
    state.sent.push({ url, body, params, phase: state.phase });
    const timings = { blocked: 1, connecting: 0, tls_handshaking: 0, duration: answer.ms };
    const echo = JSON.stringify({ request_id: answer.wrong ? 'another' : params.headers['X-Request-Id'] });
    const { status, error_code = 0, headers = {} } = answer;
    return { status, error_code, headers, body: echo, timings };
  },
};
""",
    "execution.js": """
export default {
  vu: { idInTest: 3, get iterationInScenario() { return globalThis.k6.iteration; } },
  scenario: {
    get name() { return globalThis.k6.phase; },
    get iterationInTest() { return globalThis.k6.iteration; },
    get startTime() { return globalThis.k6.started; },
  },
};
""",
    "metrics.js": """
class Metric {
  constructor(name) { this.name = name; }
  add(value, tags) { globalThis.k6.recorded.push({ metric: this.name, value, tags }); }
}
export { Metric as Counter, Metric as Rate, Metric as Trend };
""",
    "index.js": "export const sleep = (seconds) => { globalThis.k6.slept += seconds; };",
    "package.json": json.dumps(
        {
            "name": "k6",
            "type": "module",
            "exports": {
                ".": "./index.js",
                **{f"./{name}": f"./{name}.js" for name in ("http", "execution", "metrics")},
            },
        }
    ),
}
OK = {"status": 200, "ms": 20}


def run_in_node(
    script: str,
    folder: Path,
    iterations: dict[str, int],
    answers: list[dict[str, Any]] | None = None,
    *,
    since_start_s: float = 0.0,
    environment: dict[str, str] | None = None,
    function: str = "default",
) -> dict[str, Any]:
    """What the iterations of each phase sent and recorded; the last answer is repeated."""
    modules = folder / "node_modules" / "k6"
    modules.mkdir(parents=True, exist_ok=True)
    for name, text in MODULES.items():
        (modules / name).write_text(text)
    (folder / "load.mjs").write_text(script)
    orders = {
        "iterations": iterations,
        "answers": answers or [OK],
        "since_start_s": since_start_s,
        "environment": environment or {},
        "function": function,
    }
    done = subprocess.run(
        [node_program(), str(Path(__file__).with_name("k6_stand_ins.mjs")), str(folder)],
        input=json.dumps(orders),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
