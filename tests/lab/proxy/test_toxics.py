"""The laws of a line under toxics, on a clock that jumps: in order, nothing lost, nothing early, nothing too fast."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latdoctor.errors import UsageError
from latdoctor.lab.faults.toxics import (
    MOST_TOXICS,
    PIECE_SECONDS,
    ActiveToxics,
    Bandwidth,
    Blackhole,
    EndStream,
    ForwardBytes,
    Latency,
    Reset,
    ResetConnection,
    SlowClose,
    Toxic,
    ToxicStream,
    WaitUntil,
)


class Time:
    """Seconds that only the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def never(_: str) -> float:
    return 0.0


def run_stream(
    toxics: ActiveToxics, time: Time, arrivals: list[tuple[float, bytes]]
) -> tuple[list[tuple[float, bytes]], str]:
    """Feeds a line at the given offsets; what passed when (offset), and how it ended: end | cut | stuck."""
    line, start, out = ToxicStream(random.Random(7)), time(), []
    coming = [(start + offset, data) for offset, data in arrivals]
    for _ in range(200_000):
        while coming and coming[0][0] <= time():
            line.arrive(coming.pop(0)[1], time())
            if not coming:
                line.end(time())
        match line.step(time(), toxics.combined("down", never)):
            case ForwardBytes(data):
                out.append((time() - start, data))
            case WaitUntil(until):
                upcoming = [moment for moment in (until, coming[0][0] if coming else None) if moment is not None]
                if not upcoming:
                    return out, "stuck"
                time.seconds = max(min(upcoming), math.nextafter(time(), math.inf))
            case EndStream():
                return out, "end"
            case ResetConnection():
                return out, "cut"
    raise AssertionError("the line does not come to an end")


chunks = st.lists(st.tuples(st.floats(0, 2), st.binary(min_size=1, max_size=300)), min_size=1, max_size=12).map(
    lambda found: sorted(found, key=lambda one: one[0])
)
effects = st.lists(
    st.one_of(
        st.builds(Latency, st.floats(0, 2), st.floats(0, 2), st.sampled_from(["uniform", "normal"])),
        st.builds(Bandwidth, st.floats(50, 1e6)),
        st.builds(SlowClose, st.floats(0, 3)),
        st.just(Blackhole()),
    ),
    max_size=4,
)


@given(arrivals=chunks, hit=effects, lifetime=st.floats(0.01, 5))
def test_every_byte_passes_in_order_and_then_the_end(
    arrivals: list[tuple[float, bytes]], hit: list[Latency | Bandwidth | SlowClose | Blackhole], lifetime: float
) -> None:
    time = Time()
    toxics = ActiveToxics(time)
    for number, effect in enumerate(hit):
        toxics.add(Toxic(f"t{number}", effect, lifetime))
    out, end = run_stream(toxics, time, arrivals)
    assert end == "end"
    assert b"".join(data for _, data in out) == b"".join(data for _, data in arrivals)


@given(arrivals=chunks, seconds=st.floats(0, 2), jitter=st.floats(0, 1))
def test_no_chunk_comes_earlier_than_its_delay_nor_later_without_cause(
    arrivals: list[tuple[float, bytes]], seconds: float, jitter: float
) -> None:
    time = Time()
    toxics = ActiveToxics(time)
    toxics.add(Toxic("slow", Latency(seconds, jitter), 3000))
    out, _ = run_stream(toxics, time, arrivals)
    assert len(out) == len(arrivals)
    for (offset, _), (passed, _) in zip(arrivals, out, strict=True):
        earliest = offset + max(0.0, seconds - jitter)
        assert earliest - 1e-9 <= passed
    # Chunks wait side by side, not one after the other: the last is late by one delay and not by the sum.
    assert out[-1][0] <= arrivals[-1][0] + seconds + jitter + 1e-9


@given(arrivals=chunks, rate=st.floats(20, 5000))
def test_a_limited_line_passes_no_more_than_its_rate_and_no_less(
    arrivals: list[tuple[float, bytes]], rate: float
) -> None:
    time = Time()
    toxics = ActiveToxics(time)
    toxics.add(Toxic("narrow", Bandwidth(rate), 3600))
    out, _ = run_stream(toxics, time, arrivals)
    for first in range(len(out)):
        total = 0
        for passed, data in out[first:]:
            total += len(data)
            # The piece that the window begins with was on its way before.
            assert total <= rate * (passed - out[first][0]) + max(1.0, rate * PIECE_SECONDS) + 1e-6
    size = sum(len(data) for _, data in arrivals)
    assert out[-1][0] <= arrivals[-1][0] + size / rate + 1e-6


def test_a_limit_after_a_blackhole_gives_no_credit_for_the_time_that_nothing_passed() -> None:
    time = Time()
    toxics = ActiveToxics(time)
    toxics.add(Toxic("hole", Blackhole(), 100))
    toxics.add(Toxic("narrow", Bandwidth(1000), 1000))
    out, _ = run_stream(toxics, time, [(0, b"x" * 1000)])
    assert out[0][0] >= 100
    assert out[-1][0] == pytest.approx(101)


def test_a_blackhole_holds_all_until_its_lifetime_is_over() -> None:
    time = Time()
    toxics = ActiveToxics(time)
    toxics.add(Toxic("hole", Blackhole(), 30))
    assert run_stream(toxics, time, [(0, b"a"), (5, b"b")]) == ([(30, b"a"), (30, b"b")], "end")


def test_a_reset_comes_after_so_many_bytes_exactly() -> None:
    time = Time()
    toxics = ActiveToxics(time)
    toxics.add(Toxic("cut", Reset(after_bytes=5), 60))
    out, end = run_stream(toxics, time, [(0, b"abc"), (1, b"defg")])
    assert (b"".join(data for _, data in out), end) == (b"abcde", "cut")


def test_a_slow_close_delays_the_end_only() -> None:
    time = Time()
    toxics = ActiveToxics(time)
    toxics.add(Toxic("late-end", SlowClose(4), 60))
    out, end = run_stream(toxics, time, [(1, b"all")])
    assert (out, end, time()) == ([(1, b"all")], "end", 1005)


def test_delays_add_up_and_the_tightest_limit_counts() -> None:
    toxics = ActiveToxics(Time())
    for name, effect in {"a": Latency(1, 0.5), "b": Latency(2), "c": Bandwidth(10), "d": Bandwidth(20)}.items():
        toxics.add(Toxic(name, effect, 60))
    found = toxics.combined("down", never)
    assert (found.latency, found.jitter, found.bytes_per_second) == (3, 0.5, 10)
    assert toxics.combined("up", never).latency == 0


@pytest.mark.parametrize(("lot", "met"), [(0.0, True), (0.29, True), (0.31, False)])
def test_toxicity_is_the_share_of_connections_met(lot: float, met: bool) -> None:
    toxics = ActiveToxics(Time())
    toxics.add(Toxic("some", Blackhole(), 60, toxicity=0.3))
    assert toxics.combined("down", lambda _: lot).blackhole is met


@given(lifetimes=st.lists(st.floats(0.001, 3600), min_size=1, max_size=8), after=st.floats(0, 4000))
def test_a_toxic_is_in_force_for_its_lifetime_and_no_longer(lifetimes: list[float], after: float) -> None:
    time = Time()
    toxics = ActiveToxics(time)
    ends = {f"t{number}": toxics.add(Toxic(f"t{number}", Blackhole(), life)) for number, life in enumerate(lifetimes)}
    time.seconds += after
    left = {found.toxic.name for found in toxics.active()}
    assert left == {name for name, added in ends.items() if added.expires_at > time()}
    assert toxics.combined("down", never).blackhole is bool(left)


def test_a_toxic_is_addressed_by_its_name() -> None:
    time = Time()
    toxics = ActiveToxics(time)
    calls: list[int] = []
    listener: Callable[[], None] = lambda: calls.append(1)  # noqa: E731 (the very object is forgotten again)
    toxics.listen(listener)
    toxics.add(Toxic("a", Blackhole(), 60))
    toxics.add(Toxic("b", Latency(1), 60))
    with pytest.raises(UsageError, match="already"):
        toxics.add(Toxic("a", Latency(1), 60))
    assert (toxics.remove("a"), toxics.remove("a"), toxics.remove("other")) == (True, False, False)
    assert [found.toxic.name for found in toxics.active()] == ["b"]
    assert len(calls) == 3
    time.seconds += 61
    assert toxics.remove("b") is False  # it has gone by itself
    toxics.add(Toxic("b", Latency(1), 60))  # and its name is free again
    toxics.forget(listener)
    toxics.remove("b")
    assert len(calls) == 4


@pytest.mark.parametrize(
    "wrong",
    [
        Toxic("Not a name", Blackhole(), 1),
        Toxic("a", Blackhole(), 0),
        Toxic("a", Blackhole(), math.inf),
        Toxic("a", Blackhole(), math.nan),
        Toxic("a", Blackhole(), 1, toxicity=1.5),
        Toxic("a", Blackhole(), 1, stream="sideways"),  # type: ignore[arg-type]  # wrong on purpose
        Toxic("a", Latency(-1), 1),
        Toxic("a", Latency(0, math.nan), 1),
        Toxic("a", Bandwidth(0), 1),
        Toxic("a", Reset(-1), 1),
    ],
    ids=str,
)
def test_a_toxic_that_makes_no_sense_is_refused(wrong: Toxic) -> None:
    toxics = ActiveToxics(Time())
    with pytest.raises(UsageError, match="not valid"):
        toxics.add(wrong)
    assert toxics.active() == ()


def test_the_number_of_toxics_is_bounded() -> None:
    toxics = ActiveToxics(Time())
    for number in range(MOST_TOXICS):
        toxics.add(Toxic(f"t{number}", Latency(0), 60))
    with pytest.raises(UsageError, match="already"):
        toxics.add(Toxic("one-more", Latency(0), 60))


def delays(effect: Latency) -> list[float]:
    """How late chunks that come far apart are."""
    time = Time()
    toxics = ActiveToxics(time)
    toxics.add(Toxic("jitter", effect, 3600))
    arrivals = [(number * 10.0, b"x") for number in range(300)]
    out, end = run_stream(toxics, time, arrivals)
    assert end == "end"
    return [passed - arrived for (passed, _), (arrived, _) in zip(out, arrivals, strict=True)]


def test_normal_jitter_is_as_wide_as_configured_and_has_tails() -> None:
    found = delays(Latency(1.0, 0.2, "normal"))
    assert sum(found) / 300 == pytest.approx(1.0, abs=0.05)  # four standard errors
    assert math.sqrt(sum((one - 1.0) ** 2 for one in found) / 300) == pytest.approx(0.2, rel=0.2)
    assert max(found) > 1.4  # past what a uniform jitter of that width ever has


def test_uniform_jitter_keeps_to_its_bounds() -> None:
    found = delays(Latency(1.0, 0.2))
    assert 0.8 <= min(found) < 0.85
    assert 1.15 < max(found) <= 1.2 + 1e-9
