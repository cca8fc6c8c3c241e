"""`latdoctor lab proxy` as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest

from latdoctor.cli.lab_inject import address
from latdoctor.errors import UsageError

TOKEN = "a-token-of-a-test"  # noqa: S105
WITHIN = 60.0


class Upstream(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's own naming)
        """Says nothing."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "latdoctor", "lab", "proxy", *arguments]


def test_it_passes_on_is_spoiled_on_request_and_ends_in_order() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        Thread(target=upstream.serve_forever, daemon=True).start()
        to = f"127.0.0.1:{upstream.server_address[1]}"
        environment = {**os.environ, "LATDOCTOR_ADMIN_TOKEN": TOKEN}
        with subprocess.Popen(
            command("--to", to), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                proxy, control = (process.stdout.readline().strip() for _ in range(2))
                toxics = f"{control}/toxics"
                with httpx.Client(timeout=WITHIN, trust_env=False) as client:
                    assert client.get(f"http://{proxy}/").text == "ok"
                    cut = {"name": "cut", "effect": {"kind": "reset"}, "lifetime": 60}
                    assert client.post(toxics, json=cut).status_code == 401
                    client.headers["authorization"] = f"Bearer {TOKEN}"
                    assert client.post(toxics, json=cut).status_code == 201
                    with pytest.raises(httpx.TransportError):
                        client.get(f"http://{proxy}/")
                    assert client.delete(f"{toxics}/cut").status_code == 204
                    assert client.get(f"http://{proxy}/").text == "ok"
                process.send_signal(signal.SIGTERM)
                assert process.wait(WITHIN) == 0
                assert (process.stdout.read(), process.stderr.read()) == ("", "")
            finally:
                if process.poll() is None:
                    process.kill()
                upstream.shutdown()


@pytest.mark.parametrize(
    ("arguments", "token", "said"),
    [
        (["--to", "127.0.0.1:9"], "", "needs a token"),
        (["--to", "nowhere"], TOKEN, "must be HOST:PORT"),
        (["--to", "127.0.0.1:9"], "short", "shorter than"),
    ],
)
def test_invalid_options_are_reported(arguments: list[str], token: str, said: str) -> None:
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN,
        env={**os.environ, "LATDOCTOR_ADMIN_TOKEN": token},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), ("http://localhost:8080/", ("localhost", 8080)), ("[::1]:9", ("::1", 9))],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    assert address(text) == expected


@pytest.mark.parametrize(
    "text", ["", "host", ":80", "host:", "host:0", "host:65536", "host:٣", "host:80/path", "a/b:8"]
)
def test_an_invalid_address_is_reported(text: str) -> None:
    with pytest.raises(UsageError):
        address(text)
