"""A call on a thread of its own: what it gives and raises comes back, and nobody has to wait for it."""

from __future__ import annotations

import sys
import threading

import pytest

from latdoctor.background import Beside


def test_what_the_call_gives_comes_back() -> None:
    call = Beside(threading.current_thread, "a-name")
    assert call.wait(10.0)
    assert call.ended
    thread = call.outcome()
    assert (thread.name, thread.daemon) == ("a-name", True)
    assert thread is not threading.current_thread()


def test_nothing_is_an_outcome_too() -> None:
    call = Beside(lambda: None, "x")
    assert call.wait(10.0)
    assert call.outcome() is None


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_it_raises_is_raised_where_somebody_waits(error: BaseException) -> None:
    def raises() -> None:
        raise error

    call = Beside(raises, "x")
    assert call.wait(10.0)
    with pytest.raises(type(error)) as raised:
        call.outcome()
    assert raised.value is error


def test_one_that_hangs_is_left_behind_and_may_still_end() -> None:
    go = threading.Event()
    call = Beside(lambda: go.wait(10.0), "x")
    assert not call.wait(0.0)
    assert not call.ended
    go.set()
    assert call.wait(10.0)
    assert call.outcome() is True


def test_a_traceback_that_shows_variables_shows_nothing_of_what_the_call_was_given() -> None:
    def asks(token: str) -> str:
        return f"answered {token}"

    token = "s3cret"  # noqa: S105 - that is the test
    call = Beside(lambda: asks(token), "x")
    assert call.wait(10.0)
    assert token not in repr(call)
    assert not hasattr(call, "__dict__")
    assert not any(callable(getattr(call, name)) for name in Beside.__slots__)


def test_its_thread_does_not_keep_the_program_from_ending() -> None:
    import subprocess

    code = (
        "import threading\nfrom latdoctor.background import Beside\nBeside(threading.Event().wait, 'x')\nprint('over')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr
