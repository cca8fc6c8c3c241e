"""Of however many requests with a wrong token a line is said once in a while, and how many were not told."""

from __future__ import annotations

import threading

from latdoctor.incident.webhook_server import APART, RefusalLog


def test_first_refusal_is_logged_and_others_counted() -> None:
    refusals = RefusalLog()
    first = refusals.line("10.0.0.7", 1000.0, showed=True)
    assert first.startswith("refused (401) a request from 10.0.0.7: the token is not the one")
    assert "more were refused" not in first
    assert [refusals.line(f"10.0.0.{n}", 1000.0 + n, showed=True) for n in range(50)] == [""] * 50
    again = refusals.line("10.0.0.8", 1000.0 + APART, showed=False)
    assert "10.0.0.8: it has no token; 50 more were refused since the last report" in again
    assert refusals.line("10.0.0.8", 1001.0 + APART, showed=False) == ""


def test_concurrent_refusals_log_one_line() -> None:
    refusals, said = RefusalLog(), []
    workers = [threading.Thread(target=lambda: said.append(refusals.line("a", 5.0, showed=True))) for _ in range(40)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sum(map(bool, said)) == 1


def test_an_odd_address_is_no_control_sequence() -> None:
    assert "\x1b" not in RefusalLog().line("fe80::1%\x1b[31m", 0.0, showed=True)
