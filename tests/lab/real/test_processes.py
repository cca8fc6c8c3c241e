"""Servers as processes: started, found, disturbed, restored and ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from latdoctor.errors import OperationError
from latdoctor.http.client import HttpRequest, HttpResponse, send_request
from latdoctor.lab.real.real_faults import (
    AdminChange,
    AdminRequest,
    FileEdit,
    HangProcess,
    KillProcess,
    RestartChanged,
    ThrottleProcess,
    injected,
)
from latdoctor.lab.real.server_process import RealServer
from tests.lab.real.toy import TOY, installed
from tests.waiting import comes_about


def state(pid: int) -> str:
    """The state of a process as the kernel prints it; empty after its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def page(server: RealServer) -> str:
    response = send_request(HttpRequest("GET", server.pages[0], {}, reads=True), 5.0)
    return response.body.decode() if isinstance(response, HttpResponse) else ""


def test_a_server_runs_with_its_settings_and_leaves_no_process(tmp_path: Path) -> None:
    with RealServer(TOY, installed(tmp_path), {"LIMIT": "7"}) as server:
        assert "toy_limit 7" in page(server)
        assert [path.read_text() for path in server.logs] == ["limit 7\n"]
        whole, engine = server.processes(engine=False), server.processes(engine=True)
        assert set(engine) < set(whole)
    gone = {"", "Z"}  # no parent collects the zombie of a process that outlived its own
    assert comes_about(lambda: {state(pid) for pid in whole} <= gone, 10.0)
    assert not server.folder.exists()


def test_a_server_that_ends_at_once_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "start-toy").write_text("#!/bin/sh\necho no model > log-$1.txt\nexit 3\n", encoding="utf-8")
    (tmp_path / "start-toy").chmod(0o755)
    with pytest.raises(OperationError, match="no model"), RealServer(TOY, tmp_path, {}):
        pass


def test_hanging_processes_go_on_afterwards(tmp_path: Path) -> None:
    with RealServer(TOY, installed(tmp_path), {}) as server:
        (engine,) = server.processes(engine=True)
        with injected(HangProcess(), server):
            assert comes_about(lambda: state(engine) == "T", 10.0)
        assert comes_about(lambda: state(engine) == "S", 10.0)
        with injected(ThrottleProcess(stopped=0.05, running=0.05), server):
            assert comes_about(lambda: state(engine) == "T", 10.0)
            assert comes_about(lambda: state(engine) == "S", 10.0)
        assert comes_about(lambda: state(engine) == "S", 10.0)


def test_a_killed_server_is_started_again(tmp_path: Path) -> None:
    with RealServer(TOY, installed(tmp_path), {}) as server:
        with injected(KillProcess(), server):
            assert comes_about(lambda: not server.is_alive, 10.0)
            assert page(server) == ""
        assert "toy_limit 4" in page(server)


def test_a_changed_setting_lasts_as_long_as_the_fault(tmp_path: Path) -> None:
    with RealServer(TOY, installed(tmp_path), {}) as server:
        with injected(RestartChanged({"LIMIT": "1"}), server):
            assert "toy_limit 1" in page(server)
        assert "toy_limit 4" in page(server)


def test_an_edited_file_is_restored(tmp_path: Path) -> None:
    with RealServer(TOY, installed(tmp_path), {}) as server:
        file = server.folder / "settings"
        file.write_text("delay: 2 ms", encoding="utf-8")
        sent = (AdminRequest("http://127.0.0.1:{port}/load"),)
        with injected(AdminChange((FileEdit("settings", "2 ms", "450 ms"),), sent), server):
            assert file.read_text() == "delay: 450 ms"
        assert file.read_text() == "delay: 2 ms"
        missing = AdminChange((FileEdit("settings", "3 ms", "1 ms"),))
        with pytest.raises(OperationError, match="0 times"), injected(missing, server):
            pass


def test_a_replica_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with (
        RealServer(TOY, installed(tmp_path), {}) as server,
        pytest.raises(OperationError, match="has 0 replicas"),
        injected(HangProcess(replica=1), server),
    ):
        os.abort()
