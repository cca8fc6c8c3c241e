"""What logs say of changes: a line that says so is an event, one that merely mentions it is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.collectors.logs import collector as logs
from latdoctor.collectors.logs.patterns import MARKER_HINTS, LoggedChange, change_in
from latdoctor.evidence.bundle import Artifact


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("INFO:     Started server process [42]", LoggedChange("change.process_start")),
        ("[2026-01-31 02:49:00 +0000] [7] [INFO] Booting worker with pid: 7", LoggedChange("change.process_start")),
        ("successfully loaded 'densenet_onnx' version 2", LoggedChange("change.model", "model densenet_onnx", "2")),
        (
            "Starting to load model meta-llama/Llama-3-8B...",
            LoggedChange("change.model", "model meta-llama/Llama-3-8B"),
        ),
        ("Loading model: checkout, version: 1.2", LoggedChange("change.model", "model checkout", "1.2")),
        ("model version changed to v7", LoggedChange("change.model", "model version", "v7")),
        ("serving with model_version=2026-01-31", LoggedChange("change.model", "model version", "2026-01-31")),
        ("Config reloaded", LoggedChange("change.config", "configuration")),
        ("configuration file scheduler.yaml reloaded", LoggedChange("change.config", "configuration scheduler.yaml")),
        ("deployed checkout v7 to production", LoggedChange("change.deployment", "checkout v7 to production")),
        ("rolling out build 812", LoggedChange("change.deployment", "build 812")),
        ("the deployment is healthy", None),
        ("model answered in 12 ms", None),
        ("config is fine", None),
        ("CUDA error: invalid argument", None),
    ],
)
def test_mark(message: str, expected: LoggedChange | None) -> None:
    assert change_in(message) == expected
    assert expected is None or MARKER_HINTS.search(message.encode())


def test_a_mark_is_an_event_with_its_time() -> None:
    lines = b"2026-01-31T02:48:00Z INFO ready\n2026-01-31T02:49:02Z INFO model version changed to v7\n"
    found = logs.READER.parse([Artifact("logs/a.log", "logs", "a.log", "a.log", 1.77e9, lines)])
    (event,) = found.events
    assert (event.signal, event.subject, event.fields["to"]) == ("change.model", "node/a.log", "v7")
    assert event.time == 1769827742


def test_a_secret_in_a_line_is_not_shown() -> None:
    lines = b"2026-01-31T02:49:02Z INFO deployed v7 with --api-key=hunter2 and PASSWORD=hunter2\n"
    (event,) = logs.READER.parse([Artifact("logs/a.log", "logs", "a.log", "a.log", 1.77e9, lines)]).events
    assert "deployed v7" in event.text
    assert "hunter2" not in f"{event.text} {event.fields}"


@given(st.text(max_size=400))
def test_any_message_is_a_mark_or_none(message: str) -> None:
    found = change_in(message)
    assert found is None or found.signal.startswith("change.")
