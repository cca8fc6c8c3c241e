"""`latdoctor compare URL --set NAME=VALUE`: one real server whose setting changes for every other run."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator

import pytest

from latdoctor.lab.admin_client import AdminClient
from latdoctor.lab.child_process import ChildProcess
from latdoctor.lab.server.supervisor import free_ports
from tests.cli.running import run
from tests.load.tiny_server import serving

TOKEN = secrets.token_urlsafe()
LOAD = ["--rate", "20", "--for", "1s", "--pairs", "2"]


@pytest.fixture(scope="module")
def server() -> Iterator[AdminClient]:
    (port,) = free_ports(1)
    environment = {"POD_IP": "127.0.0.1", "LATDOCTOR_ADMIN_TOKEN": TOKEN}
    child = ChildProcess("the server", "latdoctor.lab.cluster.reference_pod", [f"--port={port}"], environment)
    with child:
        child.wait_answers(f"http://127.0.0.1:{port}/readyz")
        yield AdminClient(f"http://127.0.0.1:{port}", TOKEN)


def test_server_takes_turns_between_two_settings_and_is_left_as_it_was(
    server: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", TOKEN)
    before, version = server.config()
    outcome = run(["compare", server.url, "--set", "batching.max_wait_ms=400", *LOAD, "-o", "json"])
    assert outcome.code in (0, 3, 4), outcome.err
    found = json.loads(outcome.out)
    assert found["pairs"] == 2
    assert found["b"] == f"{server.url} with batching.max_wait_ms=400"
    median = next(one for one in found["effects"] if one["quantity"] == "p50")
    assert median["ratio"] > 1.5, "a batch waits for up to 400 ms"
    assert "if this command is killed: curl" in outcome.err
    assert TOKEN not in outcome.err
    after, changed = server.config()
    assert after == before
    assert changed != version


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["batching.max_wait_mss=1"], "batching.max_wait_ms"),
        (["batching.max_wait_ms=abc"], "abc"),
        (["batching.max_wait_ms"], "must be NAME=VALUE"),
        (["batching.scheduler=adaptive", "batching.scheduler=single"], "each name once"),
        ([], "either a second side or --set"),
    ],
)
def test_setting_that_cannot_be_is_refused_before_any_load(
    server: AdminClient, monkeypatch: pytest.MonkeyPatch, values: list[str], says: str
) -> None:
    monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", TOKEN)
    _, version = server.config()
    outcome = run(["compare", server.url, *(part for one in values for part in ("--set", one)), *LOAD])
    assert outcome.code == 2
    assert says in outcome.err
    assert server.config()[1] == version


def test_value_that_the_server_has_already_is_no_comparison(
    server: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", TOKEN)
    present = server.config()[0].batching.max_wait_ms
    outcome = run(["compare", server.url, "--set", f"batching.max_wait_ms={present}", *LOAD])
    assert outcome.code == 2
    assert "has these values already" in outcome.err


def test_server_without_an_admin_interface_is_not_changed() -> None:
    with serving() as server:
        outcome = run(["compare", server.address, "--set", "a=1", *LOAD])
    assert outcome.code != 0
    assert not server.attempts
