"""Notes say that a limit of concurrent or waiting requests was changed."""

from __future__ import annotations

import pytest

from latdoctor.detectors.limit_change import limit_changes
from latdoctor.evidence.model import Event, Evidence, Origin, Reading, Window


def ratio(*notes: tuple[float, str], subject: str = "service") -> float | None:
    events = tuple(Event("change.deployment", subject, Origin("notes"), {}, at, text) for at, text in notes)
    queue = Reading("queue.depth", "model/a@h:1", 30.0, Origin("page"), Window(9000.0, 9010.0))
    found = limit_changes(Evidence(readings=(queue,), events=events)).readings
    return next((float(one.value) for one in found if one.signal == "admission.limit_ratio"), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("config: max-num-seqs 4 -> 1", 0.25),
        ("set max_running_requests: 256 → 32", 0.125),
        ("serving.vllm.maxNumSeqs changed, maxNumSeqs from 16 to 64", 4.0),
        ("config: sum max_queue_size 0 -> 2", 0.0),
        ('"containerConcurrency": 10 => 5', 0.5),
        ("scaled replicas 4 -> 1", None),
        ("max-num-seqs 4 -> 4", None),
        ("max-model-len 4096 -> 1024", None),
        ("deployed v7", None),
    ],
)
def test_what_a_note_says(text: str, expected: float | None) -> None:
    assert ratio((8900.0, text)) == expected


def test_the_last_change_counts() -> None:
    assert ratio((8800.0, "max-num-seqs 16 -> 4"), (8900.0, "max-num-seqs 4 -> 16")) == 4.0


@pytest.mark.parametrize("at", [9000.0 - 3600, 9020.0])
def test_what_was_long_ago_or_is_to_come_does_not_count(at: float) -> None:
    assert ratio((at, "max-num-seqs 4 -> 1")) is None


def test_a_note_about_another_server_does_not_count() -> None:
    assert ratio((8900.0, "max-num-seqs 4 -> 1"), subject="server/other:1") is None
