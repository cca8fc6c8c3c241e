"""Calls on daemon threads: their results and exceptions, abandoned calls, and concurrent ones."""

from __future__ import annotations

import sys
import threading
from functools import partial

import pytest

from latdoctor.background import BackgroundCall, run_concurrently


def test_the_result_is_returned() -> None:
    call = BackgroundCall(threading.current_thread, "a-name")
    assert call.wait(10.0)
    assert call.ended
    thread = call.outcome()
    assert (thread.name, thread.daemon) == ("a-name", True)
    assert thread is not threading.current_thread()


def test_none_is_a_result() -> None:
    call = BackgroundCall(lambda: None, "x")
    assert call.wait(10.0)
    assert call.outcome() is None


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_its_exception_is_raised_on_the_waiting_thread(error: BaseException) -> None:
    def raises() -> None:
        raise error

    call = BackgroundCall(raises, "x")
    assert call.wait(10.0)
    with pytest.raises(type(error)) as raised:
        call.outcome()
    assert raised.value is error


def test_one_that_hangs_is_left_behind_and_may_still_end() -> None:
    go = threading.Event()
    call = BackgroundCall(lambda: go.wait(10.0), "x")
    assert not call.wait(0.0)
    assert not call.ended
    go.set()
    assert call.wait(10.0)
    assert call.outcome() is True


def test_a_traceback_that_shows_variables_shows_nothing_of_what_the_call_was_given() -> None:
    def asks(token: str) -> str:
        return f"answered {token}"

    token = "s3cret"  # noqa: S105 - that is the test
    call = BackgroundCall(lambda: asks(token), "x")
    assert call.wait(10.0)
    assert token not in repr(call)
    assert not hasattr(call, "__dict__")
    assert not any(callable(getattr(call, name)) for name in BackgroundCall.__slots__)


def test_its_thread_does_not_keep_the_program_from_ending() -> None:
    import subprocess

    code = (
        "import threading\nfrom latdoctor.background import BackgroundCall\n"
        "BackgroundCall(threading.Event().wait, 'x')\nprint('over')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


def test_concurrent_calls_keep_their_order_and_limit() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def call(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1
        return number

    assert run_concurrently([partial(call, number) for number in range(20)], 4, "x") == tuple(range(20))
    assert 1 < most <= 4
    assert run_concurrently([], 4, "x") == ()


def test_an_exception_of_a_concurrent_call_is_raised() -> None:
    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_concurrently([fails, lambda: None], 2, "x")
