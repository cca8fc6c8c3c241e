"""Shapes outside of what a TensorRT engine was built for, in the log of whatever server runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.collectors.logs import collector as logs
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Event, Evidence
from tests.cli.running import checks, diagnosed

SAID = [
    "E0223 16:24:18.000001 77 logging.cc:40] 3: Error Code 3: API Usage Error (Parameter check failed, condition: "
    "profileMaxDims.d[i] >= dimensions.d[i]. Supplied binding dimension [32,3] for bindings[0] exceed min ~ max range)",
    "2026-01-31 02:49:10 ERROR Set dimension [1,1620] for tensor x does not satisfy any optimization profiles.",
    "2026-01-31 02:49:10 ERROR request specifies invalid shape for input 'images' for yolo_0. Error details: model "
    "expected the shape of dimension 0 to be between 1 and 8 but received 32",
    "E0131 02:49:10.000001 77 x.cc:1] trt failed to set binding dimension to [8,10,128] for input 'input_id' for ocr",
]


def parsed(*lines: str) -> Evidence:
    return logs.READER.parse([Artifact("logs/a", "logs", "a", "a", 1.77e9, "\n".join(lines).encode())])


def refused(found: Evidence) -> list[Event]:
    return [event for event in found.events if event.signal == "log.engine_shape"]


@pytest.mark.parametrize("said", SAID)
def test_each_of_the_words_is_an_event(said: str) -> None:
    (event,) = refused(parsed("2026-01-31 02:49:00 INFO up", said))
    assert (event.subject, event.origin.place) == ("node/a", "line 2")


def test_a_log_that_is_silent_of_it_claims_nothing() -> None:
    found = parsed("2026-01-31 02:49:00 INFO optimization profile 0 selected", "2026-01-31 02:49:01 INFO up")
    assert not refused(found)
    assert "log.engine_shape" not in {signal for signal, _ in found.looked}


@pytest.mark.parametrize("said", SAID)
def test_the_finding_fires_on_an_application_log(said: str, tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"2026-01-31 02:49:00 INFO up\n{said}\n")
    check = checks(diagnosed("--log", str(path)), "fired")["engine-shape-refused"]
    assert "outside of the engine's optimization profile" in check["message"]
