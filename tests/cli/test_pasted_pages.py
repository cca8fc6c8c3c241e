"""A metrics page as people paste it: with the headers or the talk of curl, or in a fenced block of a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run

PAGE = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="pelican-7b"} 12
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="pelican-7b"} 31
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{model_name="pelican-7b"} 0.42
"""
TALK = """*   Trying 127.0.0.1:8000...
* Connected to localhost (127.0.0.1) port 8000
> GET /metrics HTTP/1.1
> Host: localhost:8000
>
< HTTP/1.1 200 OK
< content-type: text/plain; version=0.0.4
<
{ [1205 bytes data]
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/plain\r\n\r\n{PAGE}", id="headers"),
        pytest.param(TALK + PAGE, id="talk"),
        pytest.param(f"here is the page\n```\n{PAGE}```\nthanks\n", id="fenced"),
        pytest.param(f"the page:\n\n```text\n{PAGE}", id="fence-without-an-end"),
    ],
)
def test_a_pasted_page_is_read_as_a_page(text: str, tmp_path: Path) -> None:
    path = tmp_path / "paste.txt"
    path.write_text(text)
    out = run(["diagnose", str(path)]).out
    assert all(number in out for number in ("31 waiting", "12 running", "KV cache 42 % full"))
