"""Clients that disconnect, or many clients at once: others are not affected, and no state remains."""

from __future__ import annotations

import gc
import socket

import pytest

from latdoctor.lab.server.config import QueueConfig, ServerConfig
from latdoctor.lab.server.intent_request import Ticket
from tests.lab.server.running_server import TOKEN, Running

MANY = 300


def tickets_alive() -> list[Ticket]:
    """Requests of this process that something still refers to; cycles that only await collection do not count."""
    gc.collect()
    return [thing for thing in gc.get_objects() if type(thing) is Ticket]


def test_an_administrator_that_vanishes_half_way_leaves_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    head = f"PATCH /admin/config HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\nif-match: *\r\n"
    head += "content-type: application/json\r\n"
    with Running() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"{head}expect: 100-continue\r\ncontent-length: 99\r\n\r\n".encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 100")
            connection.sendall(b'{"batching"')
        assert server.ask(text="hello").status_code == 200
    assert capsys.readouterr().err == ""  # it has ended: all that it had to say is said


def test_a_body_that_ends_in_invalid_bytes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with Running() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(b"POST /v1/intent HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 400")
        server.until(lambda: server.page()[("ref_requests_cancelled_total", "")] == 1)
        assert server.ask(text="hello").status_code == 200
    assert capsys.readouterr().err == ""


def test_nothing_stays_of_a_request_that_was_answered_before_its_deadline() -> None:
    of_other_tests = {id(ticket): ticket for ticket in tickets_alive()}  # held, so that no id is used again
    with Running(ServerConfig(queue=QueueConfig(deadline_ms=600_000))) as server:
        assert [server.ask(text="hello").status_code for _ in range(5)] == [200] * 5
        server.until(lambda: all(id(ticket) in of_other_tests for ticket in tickets_alive()))


def test_slow_clients_do_not_delay_others(server: Running) -> None:
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MANY)]
    for connection in slow:
        connection.sendall(b"POST /v1/intent HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{")
    server.until(lambda: server.page()[("ref_arrivals_total", "")] == MANY)
    assert server.ask(text="hello").status_code == 200
    assert server.page()[("ref_queue_depth", "")] == 0
    for connection in slow:
        connection.close()
    server.until(lambda: server.page()[("ref_requests_cancelled_total", "")] == MANY)
    assert server.parts.readiness.in_flight == 0


def test_many_clients_that_come_and_go_leave_nothing(server: Running) -> None:
    for _ in range(MANY):
        socket.create_connection(("127.0.0.1", server.port)).close()
    assert server.ask(text="hello").status_code == 200
    assert server.page()[("ref_arrivals_total", "")] == 1
