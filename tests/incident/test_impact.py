"""What it cost: no second twice, none that was not seen, and unknown is never nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.incident import events
from latdoctor.incident.impact import impact_lines
from latdoctor.incident.timeline import timeline
from latdoctor.incident.timeline_model import Impact
from latdoctor.remediation.observation import ConditionResult
from latdoctor.remediation.run_result import WindowResult
from tests.incident.scenarios import BEGAN, RUN, Log, plan, promo_rush, sampled

Spans = list[tuple[float, float, float | None]]  # the end, its length, P99


def log_of(samples: Spans, windows: Spans = (), until: float = 100.0) -> Log:  # type: ignore[assignment]
    """Entries in the order of their ends."""
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.add(0, events.RUN_JOINED, events.RunJoined(RUN))
    log.add(0, "run.opened", {"plan": plan(), "digest": "", "pid": 1}, RUN)
    listed = [(end, length, p99, True) for end, length, p99 in samples]
    listed += [(end, length, p99, False) for end, length, p99 in windows]
    for end, length, p99, is_sample in sorted(listed, key=lambda one: one[0]):
        if is_sample:
            log.add(end, events.SAMPLED, sampled(p99, seconds=length))
        else:
            status = "unknown" if p99 is None else "fails" if p99 > 0.5 else "holds"
            seen = (ConditionResult("latency.p99 < slo.p99", status),)
            log.add(end, "verify.window", WindowResult(BEGAN + end - length, BEGAN + end, "success", seen), RUN)
    log.add(until, events.CLOSED, events.IncidentClosed("resolved"))
    return log


def cost(samples: Spans, windows: Spans = (), until: float = 100.0) -> Impact:  # type: ignore[assignment]
    return timeline(log_of(samples, windows, until).incident).impact


def figures(one: Impact) -> tuple[float | None, ...]:
    return one.span, one.seen, one.over, one.within, one.unjudged, one.requests, one.requests_over


CASES: list[tuple[str, Spans, Spans, tuple[float | None, ...]]] = [
    ("nothing was seen", [], [], (100, 0, None, None, 0, None, None)),
    ("one sample over", [(10, 10, 3.2)], [], (100, 10, 10, 0, 0, 400, 120)),
    ("one within", [(10, 10, 0.3)], [], (100, 10, 0, 10, 0, 400, 0)),
    ("without a P99", [(10, 10, None)], [], (100, 10, None, None, 10, None, None)),
    ("seen twice", [(10, 10, 3.2), (10, 10, 3.2)], [], (100, 10, 10, 0, 0, 400, 120)),
    ("overlapping by half", [(10, 10, 3.2), (15, 10, 3.2)], [], (100, 15, 15, 0, 0, 400, 120)),
    ("from before the start", [(5, 10, 3.2)], [], (100, 5, 5, 0, 0, None, None)),
    ("a window alone", [], [(20, 5, 3.2), (25, 5, 0.3)], (100, 10, 5, 5, 0, None, None)),
    ("a window in a sample", [(20, 10, 3.2)], [(18, 5, 0.3)], (100, 10, 10, 0, 0, 400, 120)),
    ("a window that reaches out on both sides", [(20, 10, 3.2)], [(25, 20, 0.3)], (100, 20, 10, 10, 0, 400, 120)),
    ("a window over two samples", [(20, 5, 3.2), (30, 5, 3.2)], [(35, 30, 0.3)], (100, 30, 10, 20, 0, 800, 240)),
    ("a window without sight", [], [(20, 5, None)], (100, 5, None, None, 5, None, None)),
]


@pytest.mark.parametrize(
    ("samples", "windows", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_it_cost(samples: Spans, windows: Spans, wanted: tuple[float | None, ...]) -> None:
    assert figures(cost(samples, windows)) == tuple(one if one is None else pytest.approx(one) for one in wanted)


END = st.floats(0.1, 99.0)
SPANS = st.lists(st.tuples(END, st.floats(0.0, 40.0), st.sampled_from([0.3, 3.2, None])), max_size=12)


@given(SPANS, SPANS)
def test_no_second_counts_twice_and_none_is_lost(samples: Spans, windows: Spans) -> None:
    one = cost(samples, windows)
    assert 0 <= one.seen <= one.span + 1e-6
    assert (one.over or 0.0) + (one.within or 0.0) + one.unjudged == pytest.approx(one.seen, abs=1e-6)
    assert one.counted <= one.seen + 1e-6
    covered = sum(
        any(max(0.0, end - length) <= at < end for end, length, _ in [*samples, *windows])
        for at in (number / 10 + 0.05 for number in range(1000))
    )
    assert one.seen == pytest.approx(covered / 10, abs=0.1 * (2 * len(samples) + 2 * len(windows) + 1))


@given(SPANS, SPANS)
def test_overlapping_samples_count_once(samples: Spans, windows: Spans) -> None:
    once, twice = cost(samples, windows), cost([*samples, *samples], [*windows, *windows])
    assert (twice.seen, twice.counted) == (pytest.approx(once.seen), pytest.approx(once.counted))


def test_a_clock_that_is_set_moves_no_window() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.add(0, events.RUN_JOINED, events.RunJoined(RUN))
    log.set_by = 3600
    seen = (ConditionResult("latency.p99 < slo.p99", "fails"),)
    log.add(10, "verify.window", WindowResult(BEGAN + 3605, BEGAN + 3610, "failure", seen), RUN)
    log.add(20, events.CLOSED, events.IncidentClosed("resolved"))
    assert figures(timeline(log.incident).impact)[:3] == (20.0, pytest.approx(5.0), pytest.approx(5.0))


def test_requests_decide_without_p99() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    log.add(10, events.SAMPLED, events.ServiceSampled(10, {}, 1000, 11, 0.5))
    log.add(20, events.SAMPLED, events.ServiceSampled(10, {}, 1000, 10, 0.5))
    one = timeline(log.incident).impact
    assert (one.over, one.within, one.requests, one.requests_over) == (10.0, 10.0, 2000, 21)


BOUNDED = [
    (3.2, "at least", "over"), (3.2, "at most", "unjudged"), (0.3, "at most", "within"), (0.3, "at least", "unjudged"),
]  # fmt: skip


@pytest.mark.parametrize(("p99", "bound", "stands"), BOUNDED)
def test_bounded_p99_decides_where_sufficient(p99: float, bound: str, stands: str) -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    values = {"service": {"latency.p99": p99}}
    said = {"seconds": 10, "values": values, "slo_p99": 0.5, "bounds": {"service": {"latency.p99": bound}}}
    log.add(10, events.SAMPLED, said)
    one = timeline(log.incident).impact
    assert {"over": one.over, "within": one.within, "unjudged": one.unjudged}[stands] == 10.0


def test_late_requests_may_be_known_only_between_two_counts() -> None:
    log = Log()
    log.add(0, events.OPENED, events.IncidentOpened("x", (), events.OpenedBy.HAND, "", ""))
    said = {"seconds": 10, "values": {}, "requests": 1000, "slo_p99": 0.5}
    log.add(10, events.SAMPLED, {**said, "over_slo_between": (20, 40)})
    log.add(20, events.SAMPLED, {**said, "over_slo": 5})
    log.add(30, events.SAMPLED, {**said, "over_slo_between": (5, 40)})
    one = timeline(log.incident).impact
    assert (one.over, one.within, one.unjudged) == (10.0, 10.0, 10.0)
    assert (one.requests, one.requests_over, one.requests_over_most) == (3000, 30, 85)
    assert any("30 to 85 of 3 000 requests" in line for line in impact_lines(one))


def test_impact_text_has_the_unmeasured_share() -> None:
    lines = list(impact_lines(timeline(promo_rush().incident).impact))
    assert any("Over its SLO for" in line for line in lines)
    assert any("the other 70 %" in line for line in lines)
    nothing = " ".join(impact_lines(cost([])))
    assert "unknown" in nothing
    assert "100 %" in nothing
