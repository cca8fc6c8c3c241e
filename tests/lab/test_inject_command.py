"""Faults are injected where they act and removed again; a missing target is reported."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from latdoctor.errors import UsageError
from latdoctor.lab.admin_client import AdminClient, AdminRefusedError
from latdoctor.lab.faults.injection import (
    AgentFault,
    CanaryFault,
    ConfigureFault,
    Fault,
    InjectionTargets,
    KillFault,
    LimitFault,
    NetworkFault,
    RestartFault,
    WeightsFault,
    inject,
)
from latdoctor.lab.faults.toxics import Latency, Toxic
from tests.cli.running import run

TOXIC = Toxic("late", Latency(0.1), 30.0)


class Recorder:
    """An admin interface that notes what it is asked, and answers with the statuses it was given."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, object]] = []
        self.statuses: dict[str, int] = {}
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                recorder.asked.append((self.command, self.path, json.loads(body) if body else None))
                self.send_response(recorder.statuses.get(self.command, 204))
                self.end_headers()

            do_PUT = do_DELETE = do_POST = _answer  # noqa: N815 — the names that http.server uses

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — its name there
                """Nothing: the test's own output stays readable."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.admin = AdminClient(f"http://127.0.0.1:{self._server.server_address[1]}", "a-token")

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    made.close()


def _site(recorder: Recorder) -> InjectionTargets:
    admin = recorder.admin
    return InjectionTargets(servers=(admin,), router=admin, clients_proxy=admin, dependency_proxy=admin)


@pytest.mark.parametrize(
    ("fault", "put", "taken"),
    [
        (
            AgentFault("leak", 2.0, 9.0),
            ("PUT", "/faults/leak", {"strength": 2.0, "lifetime": 9.0}),
            ("DELETE", "/faults/leak", None),
        ),
        (
            CanaryFault("v2+8", 0.3, 9.0),
            ("PUT", "/faults/canary", {"version": "v2+8", "share": 0.3, "lifetime": 9.0}),
            ("DELETE", "/faults/canary", None),
        ),
        (
            WeightsFault({"0": 9.0}, 9.0),
            ("PUT", "/faults/weights", {"weights": {"0": 9.0}, "lifetime": 9.0}),
            ("DELETE", "/faults/weights", None),
        ),
        (KillFault("1"), ("PUT", "/faults/kill", {"replica": "1"}), None),
    ],
)
def test_fault_is_injected_and_removed(
    recorder: Recorder, fault: Fault, put: tuple[str, str, object], taken: tuple[str, str, object] | None
) -> None:
    with ExitStack() as undo:
        inject(fault, _site(recorder), undo)
        assert recorder.asked == [put]
    assert recorder.asked == ([put, taken] if taken else [put])


def test_knobs_are_turned_in_a_slot_of_their_own_by_every_server(recorder: Recorder) -> None:
    with ExitStack() as undo:
        site = InjectionTargets(servers=(recorder.admin, recorder.admin))
        inject(ConfigureFault({"batching": {"max_wait_ms": "400"}}, 9.0), site, undo)
        inject(ConfigureFault({"memory": {"glibc": "returning"}}, 9.0), site, undo)
    slots = [path for method, path, _ in recorder.asked if method == "PUT"]
    assert len(slots) == 4
    assert len(set(slots)) == 2
    assert [path for method, path, _ in recorder.asked if method == "DELETE"] == slots[::-1]
    assert recorder.asked[0][2] == {"knobs": {"batching": {"max_wait_ms": 400.0}}, "lifetime": 9.0}


def test_knobs_can_be_turned_at_one_replica_only(recorder: Recorder) -> None:
    elsewhere = AdminClient("http://127.0.0.1:9", "a-token")
    fault = ConfigureFault({"model": {"version": "v2"}}, only=1)
    with ExitStack() as undo:
        inject(fault, InjectionTargets(servers=(elsewhere, recorder.admin)), undo)
    assert [method for method, _, _ in recorder.asked] == ["PUT", "DELETE"]
    with ExitStack() as undo, pytest.raises(UsageError):
        inject(fault, InjectionTargets(servers=(recorder.admin,)), undo)


@pytest.mark.parametrize(("status", "raises"), [(204, False), (404, False), (500, True)])
def test_a_toxic_that_has_gone_by_itself_is_no_trouble(recorder: Recorder, status: int, raises: bool) -> None:
    undo = ExitStack()
    inject(NetworkFault("clients", TOXIC), _site(recorder), undo)
    recorder.statuses["DELETE"] = status
    if raises:
        with pytest.raises(AdminRefusedError):
            undo.close()
    else:
        undo.close()
    assert [(method, path) for method, path, _ in recorder.asked] == [("POST", "/toxics"), ("DELETE", "/toxics/late")]


@pytest.mark.parametrize(
    ("fault", "lacks"),
    [
        (AgentFault("leak"), "--server"),
        (ConfigureFault({"memory": {"glibc": "returning"}}), "--server"),
        (NetworkFault("clients", TOXIC), "--proxy"),
        (WeightsFault({"0": 1.0}), "--router"),
        (CanaryFault("v2"), "--router"),
        (KillFault(), "--router"),
        (LimitFault("cpu", 0.5), "--pid"),
        (RestartFault(), ""),
    ],
)
def test_missing_injection_target_is_reported(fault: Fault, lacks: str) -> None:
    with ExitStack() as undo, pytest.raises(UsageError) as refused:
        inject(fault, InjectionTargets(), undo)
    assert lacks in refused.value.next_step


def test_the_list_names_every_scenario_and_how_it_acts() -> None:
    listed = run(["lab", "inject", "--list"])
    assert listed.code == 0
    assert "loop-block" in listed.out
    assert "its load: lab run" in listed.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--list"),
        (["overload"], "lab run overload"),
        (["loop-block"], "--server"),
        (["loop-block", "--server", "http://192.0.2.1:1"], "192.0.2.1"),
        (["no-such"], "promo-rush"),
        (["loop-block", "--for", "soon"], "soon"),
    ],
)
def test_invalid_injection_is_a_usage_error(arguments: list[str], message: str) -> None:
    refused = run(["lab", "inject", *arguments])
    assert refused.code == 2
    assert message in refused.err
