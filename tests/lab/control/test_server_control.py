"""The controller in a running server: its admin page, its metrics, its log, and changes of other clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latdoctor.lab.server.config import ControlConfig, ServerConfig
from tests.lab.control.measurements import measured
from tests.lab.server.running_server import ADMIN, Running

NEVER = 60_000  # ms between two decisions: the tests make them


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    control = ControlConfig(mode="on", interval_ms=NEVER, log=str(tmp_path / "steps.jsonl"))
    with Running(ServerConfig(control=control)) as running:
        yield running


def decide(server: Running, **fields: Any) -> dict[str, Any]:
    """One decision by a measurement with these fields; the admin page after it."""
    control = server.parts.control
    if fields:
        control.measure = lambda: measured(server.parts.live_config.engine._clock(), **fields)
    server.on_loop(control.tick())
    return status(server)


def status(server: Running) -> dict[str, Any]:
    answer: dict[str, Any] = server.client.get("/admin/control", headers=ADMIN).json()
    return answer


def test_its_steps_are_on_the_admin_page_the_metrics_page_and_in_its_log(server: Running, tmp_path: Path) -> None:
    shown = decide(server, longest_batch=0.05)
    assert shown["knobs"]["queue.deadline_ms"] == 425
    assert shown["operator"] == {"queue.deadline_ms": 0}
    assert [(step["reason"], step["applied"]) for step in shown["steps"]] == [("arm-admission", True)]
    page = server.page()
    assert page["ref_control_mode", ""] == 2
    assert page["ref_control_steps_total", "arm-admission"] == 1
    assert page["ref_control_knob", "queue.deadline_ms"] == 425
    logged = [msgspec.json.decode(line) for line in (tmp_path / "steps.jsonl").read_bytes().splitlines()]
    assert logged == shown["steps"]


def test_it_measures_what_was_answered(server: Running) -> None:
    for _ in range(3):
        assert server.ask(text="where is my order").status_code == 200
    found = decide(server)["measurement"]
    assert (found["answers"], found["arrivals"], found["batches"]) == (3, 3, 3)
    assert found["p99"] > 0


def test_a_change_of_another_client_is_kept(server: Running) -> None:
    decide(server, longest_batch=0.05)
    headers = {**ADMIN, "if-match": "*"}
    assert server.client.patch("/admin/config", json={"queue": {"deadline_ms": 450}}, headers=headers).is_success
    assert decide(server)["hold"] == "operator"
    server.client.patch("/admin/config", json={"control": {"mode": "off"}}, headers=headers)
    shown = decide(server)
    assert (shown["mode"], shown["knobs"]["queue.deadline_ms"]) == ("off", 450)


def test_off_restores_what_was_set_before(server: Running) -> None:
    decide(server, longest_batch=0.05)
    headers = {**ADMIN, "if-match": "*"}
    server.client.patch("/admin/config", json={"control": {"mode": "off"}}, headers=headers)
    shown = decide(server)
    assert shown["knobs"]["queue.deadline_ms"] == 0
    assert [step["reason"] for step in shown["steps"]] == ["arm-admission", "release"]
    assert decide(server)["hold"] == "off"
    assert server.page()["ref_control_mode", ""] == 0


def test_it_says_when_it_is_blind(server: Running) -> None:
    shown = decide(server, newest=0.0)
    assert shown["hold"] == "stale"
    assert server.page()["ref_control_blind", ""] == 1


def test_a_log_that_cannot_be_written_is_reported_and_control_goes_on(tmp_path: Path) -> None:
    control = ControlConfig(mode="on", interval_ms=NEVER, log=str(tmp_path / "none" / "steps.jsonl"))
    with Running(ServerConfig(control=control)) as server:
        shown = decide(server, longest_batch=0.05)
        assert shown["log_error"]
        assert len(shown["steps"]) == 1


def test_the_admin_page_needs_the_token(server: Running) -> None:
    assert server.client.get("/admin/control").status_code == 401
