"""What ends a run that changes something, and what does not."""

from __future__ import annotations

import signal

import pytest

from latdoctor.cli.interrupt import stoppable

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("ignored", [False, True], ids=["heeded", "ignored"])
def test_a_run_stops_unless_it_was_started_to_ignore_that(number: signal.Signals, ignored: bool) -> None:
    """`nohup` and `&` start a program with signals ignored, and mean it."""
    before = signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        given = signal.getsignal(number)
        with stoppable() as stop:
            signal.raise_signal(number)
            assert stop() == ("" if ignored else number.name)
        assert signal.getsignal(number) == given
    finally:
        signal.signal(number, before)
