"""Recompilations by torch.compile in the words of every version, and fatal errors of the interpreter."""

from __future__ import annotations

import pytest

from latdoctor.collectors.logs import collector as logs
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event

W = "W0131 12:00:00.000000 77 torch/_dynamo/convert_frame.py:906] [7/8] "
V = "V0131 12:00:01.000000 77 torch/_dynamo/guards.py:2811] [0/1] [__recompiles] "
LIMIT_2_6 = [
    W + "torch._dynamo hit config.recompile_limit (8)",
    W + "   function: 'forward' (/app/model.py:42)",
    W + "   last reason: 7/7: tensor 'L['x']' size mismatch at index 1. expected 128, actual 136",
    W + 'To log all recompilation reasons, use TORCH_LOGS="recompiles".',
]
LIMIT_2_0 = [
    "[2026-01-31 12:00:00,000] torch._dynamo.convert_frame: [WARNING] torch._dynamo hit config.cache_size_limit (64)",
    "   function: 'decode' (/app/model.py:7)",
    "   reasons:  tensor 'L['x']' dtype mismatch. expected Half, actual Float",
    "to diagnose recompilation issues, see https://pytorch.org/docs",
]
RECOMPILES = [
    V + "Recompiling function forward in /app/model.py:42",
    V + "    triggered by the following guard failure(s):",
    V + "    - 0/0: L['n'] == 5          # if n == 5:  # app/model.py:44 in forward",
    V + "    - User stack trace:",
    V + "Recompiling function forward in /app/model.py:42",
    V + "    triggered by the following guard failure(s):",
    V + "    - 0/1: tensor 'L['x']' stride mismatch at index 0. expected 8, actual 16",
    V + "    - 0/0: L['n'] == 5  # if n == 5:",
]


def events(*lines: str) -> list[Event]:
    found = logs.READER.parse([Artifact("logs/a", "logs", "a", "a", 1.77e9, "\n".join(lines).encode())])
    assert not {signal for signal, _ in found.looked} & {"log.recompile", "log.recompile_limit", "log.fatal_error"}
    return list(found.events)


@pytest.mark.parametrize(
    ("lines", "limit", "function", "kind"),
    [(LIMIT_2_6, 8, "forward", "shape"), (LIMIT_2_0, 64, "decode", "dtype")],
)
def test_the_limit_of_recompilations(lines: list[str], limit: float, function: str, kind: str) -> None:
    (event,) = events(*lines)
    assert (event.signal, event.origin.place) == ("log.recompile_limit", "line 1")
    assert (event.fields["limit"], event.fields["function"], event.fields["kind"]) == (limit, function, kind)
    assert event.time is not None


def test_each_recompilation_has_its_reason() -> None:
    found = events(*RECOMPILES)
    assert [(event.signal, event.fields["kind"]) for event in found] == [
        ("log.recompile", "value"),
        ("log.recompile", "stride"),
    ]
    assert (found[0].fields["file"], found[0].fields["reason"]) == ("/app/model.py:42", "L['n'] == 5")
    assert found[0].time is not None


def test_a_fatal_error_of_the_interpreter() -> None:
    (event,) = events("2026-01-31 12:00:00 INFO up", "Fatal Python error: Bus error", "Current thread 0x1 (most recent")
    assert (event.signal, event.fields["name"]) == ("log.fatal_error", "Bus error")


def test_other_lines_are_none_of_these() -> None:
    assert not events("INFO reasons: none", "INFO function: 'x' (y)", "INFO - 1/2: done", "INFO last reason: tired")
