"""Which texts rule CUDA errors out: logs of programs that could have written one, searched whole."""

from __future__ import annotations

import pytest

from latdoctor.collectors.logs.collector import parse
from latdoctor.evidence.bundle import Artifact

PROXY = (
    "Nov  3 14:22:00 lb1 haproxy[2214]: 10.9.0.4:51822 [03/Nov/2025:14:21:00.120] llm~ vllm/gpu-1 0/0/1/82/91 200 51 - "
    '- ---- 4/4/2/8/0 0/0 "POST /v1/completions HTTP/1.1"\n'
    "Nov  3 14:22:41 lb1 haproxy[2214]: Server vllm/gpu-2 is DOWN, reason: Layer7 timeout, 2 active servers left.\n"
)
TEXTS = {
    "a proxy's log": (PROXY, False),
    "requests alone": ('2026-01-31 02:49:00,563 INFO 10.0.0.1 "POST /v1/completions HTTP/1.1" 200 12ms\n' * 9, False),
    "the fabric manager's log": (
        "[Jul 23 2024 07:40:02] [INFO] [tid 2999] Fabric Manager version 550.90.07\n" * 3,
        False,
    ),
    "a server's log with requests": (
        '2026-01-31 02:49:00,563 INFO "POST /v1/completions HTTP/1.1" 200\n' * 9
        + "2026-01-31 02:49:01,000 INFO model loaded\n",
        True,
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_only_a_log_that_could_contain_a_cuda_error_rules_it_out(name: str) -> None:
    text, expected = TEXTS[name]
    found = parse([Artifact("logs/x.log", "logs", "x.log", "x.log", 1.7e9, text.encode())])
    assert ("log.cuda_error" in {signal for signal, _ in found.looked}) is expected
