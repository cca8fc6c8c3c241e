"""A password or a token in a server's address appears nowhere: not on screen, in no file, in no error."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cli import pages
from tests.cli.running import run, write_trusted

CANARY = "c4n4ry"
SERVED = pages.triton(81_000)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(SERVED)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def place() -> Iterator[str]:
    """`HOST:PORT` of a server that shows a page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


def _url(place: str) -> str:
    return f"http://{CANARY}1:{CANARY}2@{place}/metrics?token={CANARY}3&key={CANARY}4"


@pytest.mark.parametrize("output", ["text", "json", "markdown"])
def test_no_answer_shows_it(place: str, output: str) -> None:
    outcome = run(["diagnose", "--server", _url(place), "--window", "0.1s", "-v", "-o", output])
    assert outcome.code in (0, 3, 4), outcome.err
    assert place in outcome.out, "the server itself is named"
    assert CANARY not in outcome.out + outcome.err


def test_no_file_holds_it(place: str) -> None:
    for command in ("collect --to look", "diagnose --keep other", "baseline record --to healthy.json"):
        outcome = run([*command.split(), "--server", _url(place), "--window", "0.1s"])
        assert outcome.code in (0, 3, 4), outcome.err
        assert CANARY not in outcome.out + outcome.err
    written = [path for path in Path().rglob("*") if path.is_file()]
    assert {"manifest.json", "healthy.json"} <= {path.name for path in written}
    assert [path for path in written if CANARY.encode() in path.read_bytes() or CANARY in str(path)] == []


def test_the_configured_targets_are_listed_without_it(place: str) -> None:
    write_trusted(f"targets: {{shop: {{server: ['{_url(place)}']}}}}\n")
    outcome = run(["targets"])
    assert place in outcome.out
    assert CANARY not in outcome.out + outcome.err
    assert CANARY not in run(["diagnose", "--window", "0.1s", "-v"]).out


@pytest.mark.parametrize(
    "url",
    [
        f"ftp://user:{CANARY}@host/metrics?token={CANARY}",
        f"http://user:{CANARY}@127.0.0.1:1/metrics?token={CANARY}",  # nobody listens on port 1
        f"http://user:{CANARY}@host:99999/metrics",
        f"http://user:{CANARY}/more@host/metrics",
        f"http://?token={CANARY}",
        f"http://user:{CANARY}@[::1/metrics",
    ],
)
def test_no_error_tells_it(url: str) -> None:
    for command in (f"diagnose --window 0.1s --server {url}", f"diagnose {url}", f"diagnose --target {url}"):
        outcome = run(command.split())
        down = "127.0.0.1:1" in url and outcome.code == 3  # a named server that refuses connections is an outage
        assert down or (outcome.code in (1, 2) and outcome.err), outcome.out
        assert CANARY not in outcome.out + outcome.err


def test_a_name_for_the_look_may_be_an_address_too() -> None:
    Path("quiet.log").write_text("[    1.000000] eth0: link up\n")
    outcome = run(["diagnose", "--log", "quiet.log", "--target", f"http://u:{CANARY}@shop/x?t={CANARY}"])
    assert "http://…@shop/x?…" in outcome.out
    assert CANARY not in outcome.out


def test_an_address_in_a_bundles_place_is_told_its_option() -> None:
    outcome = run(["diagnose", "http://127.0.0.1:8002/metrics"])
    assert outcome.code == 2
    assert "latdoctor diagnose --server URL" in outcome.err


def test_two_servers_are_counted_in_the_targets_name(place: str) -> None:
    urls = [f"http://{place}/metrics", f"http://{place}/other"]
    outcome = run(["collect", "--to", "look", "--window", "0.1s", "--server", urls[0], "--server", urls[1]])
    assert outcome.code == 0, outcome.err
    assert f"target {place} and 1 more\n" in run(["bundle", "inspect", "look", "-v"]).out
