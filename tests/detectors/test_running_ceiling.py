"""A number of running requests that stands at a ceiling is told from one that follows the arrivals."""

from __future__ import annotations

import pytest

from latdoctor.detectors.running_ceiling import SHARE, running_ceilings
from latdoctor.evidence.model import Evidence, Origin, Reading, Series, Window

WINDOW = Window(100.0, 200.0)


def share(*, limit: float | None = None, mean: float | None = None, most: float | None = None, last: float = 8.0,
          samples: tuple[float, ...] = ()) -> float | None:  # fmt: skip
    """The derived share of the ceiling."""
    values = {"requests.running": last, "requests.limit": limit, "requests.running_mean": mean,
              "requests.running_most": most}  # fmt: skip
    readings = tuple(
        Reading(signal, "model/a", value, Origin("page"), WINDOW)
        for signal, value in values.items()
        if value is not None
    )
    times = tuple(110.0 + 10 * step for step in range(len(samples)))
    series = (Series("requests.running", "model/a", times, samples, Origin("log")),) if samples else ()
    found = running_ceilings(Evidence(readings=readings, series=series)).readings_by_signal.get(SHARE, ())
    return float(found[0].value) if found else None


def test_a_stated_limit_is_the_ceiling() -> None:
    assert share(limit=256, last=8, mean=8, most=8) == pytest.approx(8 / 256)


def test_without_one_it_is_the_most_that_ran() -> None:
    assert share(samples=(8, 8, 7, 8, 8)) == pytest.approx(7.8 / 8)


def test_a_number_that_only_rises_is_at_no_ceiling() -> None:
    assert share(samples=(2, 5, 9, 14, 20), last=20) == pytest.approx(0.5)
    assert share(mean=5, most=8) == pytest.approx(5 / 8)


def test_one_page_shows_no_ceiling() -> None:
    assert share() is None
    assert share(samples=(8, 8)) is None
