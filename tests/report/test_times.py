"""Of what time an answer tells. Nothing that changed later than it became slow is said to have changed before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from latdoctor.diagnosis.result import Change, Diagnosis, Onset
from latdoctor.evidence.model import Origin, Window
from latdoctor.report import time_scope

FEBRUARY, LATER = 1740327858.0, 1740328213.0
TOLD, TOLD_LATER = "2025-02-23 16:24:18 UTC", "2025-02-23 16:30:13 UTC"
NOW = 1790000010.0

SCOPES = [
    # when it was looked, what the evidence tells of → what is said
    (Window(NOW, NOW), Window(), "read 2026-09-21 14:13:30 UTC"),
    (Window(NOW - 10, NOW), Window(), "10 s to 2026-09-21 14:13:30 UTC"),
    (Window(NOW - 10, NOW), Window(NOW - 12, NOW), "10 s to 2026-09-21 14:13:30 UTC"),
    (Window(NOW, NOW), Window(FEBRUARY, FEBRUARY), f"recorded {TOLD}"),
    (Window(NOW, NOW), Window(FEBRUARY, LATER), "recorded 2025-02-23 16:24:18 to 16:30:13 UTC"),
    (Window(), Window(FEBRUARY, FEBRUARY), f"recorded {TOLD}"),
    (Window(NOW - 10, NOW), Window(FEBRUARY, NOW),
     f"10 s to 2026-09-21 14:13:30 UTC · recorded {TOLD[:-4]} to 2026-09-21 14:13:30 UTC"),
    (Window(), Window(), ""),
    (Window(NOW, NOW), Window(NOW - 60, NOW + 7200),
     "recorded 2026-09-21 14:12:30 to 16:13:30 UTC, 2 h ahead of the clock here"),
    (Window(NOW, NOW), Window(1e300, 1e300), "recorded at an impossible time"),
]  # fmt: skip


@pytest.mark.parametrize(("looked", "told", "said"), SCOPES)
def test_the_time_is_the_evidences_own_where_it_tells_it(
    diagnosis: Diagnosis, looked: Window, told: Window, said: str
) -> None:
    made = msgspec.structs.replace(diagnosis, target="bot", service="bot", window=looked, evidence_window=told)
    assert time_scope.scope(made) == " · ".join(part for part in ("bot", said) if part)


def about_then(within: float, *seconds_before: float) -> tuple[Onset, tuple[Change, ...]]:
    """A rise NOW, and changes so long before it."""
    rise = Onset(NOW, None, "latency.p99", "server/a", 0.1, 0.9, Origin("log"), within)
    told = (Change("change.model", "service", NOW - n, f"v{n:g}", n, Origin("notes")) for n in seconds_before)
    return rise, tuple(told)


@pytest.mark.parametrize(
    ("within", "seconds_before", "said"),
    [
        (0.0, (120,), ["Changed before: 14:11:30 v120 (service)"]),
        (0.0, (-20,), ["Changed just after: 14:13:50 v-20 (service)"]),
        (30.0, (20,), ["Changed about then: 14:13:10 v20 (service)"]),
        (30.0, (-20,), ["Changed about then: 14:13:50 v-20 (service)"]),
        (30.0, (-20, 40, -50, 300, 400), [
            "Changed before: 14:12:50 v40 (service) and 2 more",
            "Changed about then: 14:13:50 v-20 (service)",
            "Changed just after: 14:14:20 v-50 (service)",
        ]),
    ],
)  # fmt: skip
def test_what_came_after_is_not_said_to_have_come_before(
    diagnosis: Diagnosis, within: float, seconds_before: Sequence[float], said: list[str]
) -> None:
    rise, changes = about_then(within, *seconds_before)
    first, *found = time_scope.since_lines(msgspec.structs.replace(diagnosis, since=rise, changes=changes))
    assert found == said
    assert first.startswith("slow since 2026-09-21 14:13:30 UTC" + (" (± 30 s)" if within else ""))


def test_without_a_rise_nothing_was_before_it(diagnosis: Diagnosis) -> None:
    _, changes = about_then(0.0, 120)
    (line,) = time_scope.since_lines(msgspec.structs.replace(diagnosis, since=None, changes=changes))
    assert line.startswith("Changed recently: ")


@pytest.mark.parametrize(
    ("target", "said"), [("app.log", "process started"), ("2 files", "process started (app.log)")], ids=["one", "two"]
)
def test_a_machine_known_by_its_log_alone_is_named_as_the_file(diagnosis: Diagnosis, target: str, said: str) -> None:
    change = Change("change.process_start", "node/app.log", NOW, "process started", 9.0, Origin("logs/app.log"))
    made = msgspec.structs.replace(diagnosis, since=None, changes=(change,), target=target, service="")
    (line,) = time_scope.since_lines(made)
    assert line.endswith(f" UTC {said}")
