"""The latency of clients beyond that of the servers, and when it cannot be computed."""

from __future__ import annotations

import math

import pytest

from latdoctor.detectors import derive
from latdoctor.detectors.client_excess_latency import DERIVED, client_excess_latency
from latdoctor.evidence.model import AT_LEAST, AT_MOST, Bucket, Distribution, Evidence, Labels, Origin, Reading, Window

WINDOW = Window(1000.0, 1010.0)
CLIENT, SERVER = "client/load@c", "replica/0@s"
SIZES: dict[str, Labels] = {size: (("size", size),) for size in ("small", "large")}


def spread(
    signal: str, subject: str, values: list[float], labels: Labels = (), window: Window = WINDOW
) -> Distribution:
    """Exact values, a bucket each."""
    buckets = tuple(Bucket(value, value, float(values.count(value))) for value in sorted(set(values)))
    return Distribution(signal, subject, buckets, Origin(f"{subject}.prom"), sum(values), window, labels)


def side(
    subject: str, small: list[float], large: list[float], lags: list[float] | None = None, window: Window = WINDOW
) -> tuple[Distribution, ...]:
    """The page of a client or of a server."""
    before, lag = ("client.", "client.loop_lag") if subject.startswith("client") else ("", "loop.lag")
    found = [spread(f"{before}latency", subject, [*small, *large], window=window)]
    for size, values in (("small", small), ("large", large)):
        if values:
            found.append(spread(f"{before}latency_by_size", subject, values, SIZES[size], window))
    return (*found, *([spread(lag, subject, lags, window=window)] if lags else []))


def told(*sides: tuple[Distribution, ...]) -> dict[str, tuple[float, str]]:
    """signal → value, bound."""
    evidence = derive(Evidence(distributions=tuple(one for side in sides for one in side)))
    return {
        one.signal: (float(one.value), one.bound)
        for one in evidence.readings
        if one.signal in DERIVED and one.subject == CLIENT
    }


def later(values: list[float], *by: float) -> list[float]:
    """Each value as many times as there are delays, later by each of them."""
    return [round(value + more, 6) for value in values for more in by]


QUICK = [0.010, 0.012, 0.020, 0.030] * 20
SLOW = [0.050, 0.060] * 20


def test_a_delay_that_all_share() -> None:
    jitter = (0.02, 0.06, 0.10)
    found = told(side(CLIENT, later(QUICK, *jitter), later(SLOW, *jitter)), side(SERVER, QUICK * 3, SLOW * 3))
    for signal in ("client.excess.mean", "client.excess.small", "client.excess.large"):
        assert found[signal] == (pytest.approx(0.06), "")
    # Variances of independent quantities add: what is left is the jitter's own, to the last digit here.
    assert found["client.excess.deviation"] == (pytest.approx(math.sqrt(2 / 3) * 0.04), "")
    mean = (sum(QUICK) + sum(SLOW)) / (len(QUICK) + len(SLOW))
    assert found["client.latency_ratio"] == (pytest.approx((mean + 0.06) / mean), "")


def test_a_delay_that_grows_with_size() -> None:
    found = told(side(CLIENT, later(QUICK, 0.005), later(SLOW, 0.15)), side(SERVER, QUICK, SLOW))
    assert found["client.excess.small"][0] == pytest.approx(0.005)
    assert found["client.excess.large"][0] == pytest.approx(0.15)
    assert found["client.excess.deviation"][0] == pytest.approx(0, abs=1e-6)
    assert found["client.excess.p99"][0] == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("lags", "bound"),
    [
        ([0.0005] * 200, ""),
        ([0.0] * 190 + [0.02] * 10, ""),
        # The same mean of 15 ms: often held for a little while, or seldom for long, which a heartbeat hardly shows.
        ([0.015] * 200, ""),
        ([0.0] * 57 + [1.0] * 1, AT_MOST),
        ([0.0] * 140 + [0.3] * 10, AT_MOST),
    ],
)
@pytest.mark.parametrize("held", [CLIENT, SERVER])
def test_loops_that_are_held_up_may_be_the_reason(lags: list[float], bound: str, held: str) -> None:
    client = side(CLIENT, later(QUICK, 0.06), later(SLOW, 0.06), lags if held == CLIENT else None)
    found = told(client, side(SERVER, QUICK, SLOW, lags if held == SERVER else None))
    for signal in ("client.excess.mean", "client.excess.small", "client.excess.large"):
        assert found[signal] == (pytest.approx(0.06), bound)
    assert found["client.latency_ratio"][1] == bound


def test_of_a_lag_only_the_mean_may_be_known() -> None:
    pages = (*side(CLIENT, later(QUICK, 0.06), SLOW), *side(SERVER, QUICK, SLOW))
    lag = Reading("loop.lag.mean", SERVER, 0.012, Origin("s"), WINDOW)
    found = derive(Evidence(distributions=pages, readings=(lag,))).readings_by_signal["client.excess.small"]
    assert [(one.value, one.bound) for one in found] == [(pytest.approx(0.06), AT_MOST)]
    assert "may explain 96 ms" in found[0].note


def test_servers_that_answered_it_all_together_are_taken_together() -> None:
    half = side(SERVER, QUICK[:40], SLOW[:20])
    other = side("replica/1@t", later(QUICK[40:], 0.1), later(SLOW[20:], 0.1))
    both = [*QUICK[:40], *later(QUICK[40:], 0.1)]
    found = told(side(CLIENT, later(both, 0.06), later([*SLOW[:20], *later(SLOW[20:], 0.1)], 0.06)), half, other)
    assert found["client.excess.mean"] == (pytest.approx(0.06), "")
    assert found["client.excess.small"] == (pytest.approx(0.06), "")


def test_of_servers_that_it_may_not_all_have_asked_the_slowest_counts() -> None:
    other = side("replica/1@t", later(QUICK, 0.04), later(SLOW, 0.04))
    found = told(side(CLIENT, later(QUICK, 0.06), later(SLOW, 0.06)), side(SERVER, QUICK, SLOW), other)
    assert found["client.excess.mean"] == (pytest.approx(0.02), AT_LEAST)
    assert "client.excess.deviation" not in found


def test_at_least_and_at_most_is_nothing() -> None:
    other = side("replica/1@t", later(QUICK, 0.04), later(SLOW, 0.04), [0.3] * 50)
    found = told(side(CLIENT, later(QUICK, 0.06), later(SLOW, 0.06)), side(SERVER, QUICK, SLOW), other)
    assert not found


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ((side(CLIENT, QUICK, SLOW),), "no server-side latency"),
        ((side(CLIENT, QUICK, SLOW), side(SERVER, QUICK, SLOW, window=Window(2000.0, 2010.0))), "different times"),
        ((side(CLIENT, QUICK, SLOW), side(SERVER, QUICK, SLOW, window=Window(0.0, 1010.0))), "different times"),
        ((side(CLIENT, QUICK, SLOW), side(SERVER, QUICK, SLOW, window=Window(None, 1010.0))), "lifetime averages"),
        ((side(CLIENT, QUICK[:10], []), side(SERVER, QUICK, SLOW)), "10 responses observed on client/load@c"),
        ((side(CLIENT, QUICK, SLOW), side("client/b@d", QUICK, SLOW)), "no server-side latency"),
    ],
)
def test_what_cannot_be_compared_is_a_gap(pages: tuple[tuple[Distribution, ...], ...], reason: str) -> None:
    evidence = derive(Evidence(distributions=tuple(one for page in pages for one in page)))
    assert not set(DERIVED) & set(evidence.readings_by_signal)
    gaps = [gap for gap in evidence.gaps_by_signal["client.excess.mean"] if gap.subject == CLIENT]
    assert [reason in gap.reason for gap in gaps] == [True]
    assert set(gaps[0].signals) == set(DERIVED)


def test_what_a_source_told_is_not_derived_again() -> None:
    own = Reading("client.excess.mean", CLIENT, 0.5, Origin("gateway"), WINDOW)
    pages = (*side(CLIENT, QUICK, SLOW), *side(SERVER, QUICK, SLOW))
    found = derive(Evidence(distributions=pages, readings=(own,)))
    assert [one.value for one in found.readings_by_signal["client.excess.mean"]] == [0.5]
    assert not client_excess_latency(found).readings


def test_answers_beyond_every_bucket_leave_the_spread_open() -> None:
    beyond = Distribution(
        "client.latency_by_size", CLIENT, (Bucket(60.0, math.inf, 80.0),), Origin("c"), 5000.0, WINDOW, SIZES["small"]
    )
    client = (spread("client.latency", CLIENT, QUICK), beyond)
    evidence = derive(Evidence(distributions=(*client, *side(SERVER, QUICK, SLOW))))
    assert "client.excess.deviation" not in evidence.readings_by_signal
    assert "client.excess.deviation" in evidence.gaps_by_signal
