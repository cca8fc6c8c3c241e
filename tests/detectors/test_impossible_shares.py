"""A value that cannot be a share is a gap."""

from __future__ import annotations

import pytest

from latdoctor.detectors import derive
from latdoctor.detectors.derived_readings import drop_impossible_shares
from latdoctor.evidence.model import Evidence, Origin, Reading, Series

NAN = float("nan")


def page(signal: str, value: float) -> Evidence:
    return Evidence(readings=(Reading(signal, "model/a", value, Origin("page", "line 3")),))


@pytest.mark.parametrize(
    ("signal", "value", "believed"),
    [
        ("kv.usage", 0.0, True),
        ("kv.usage", 0.995, True),
        ("kv.usage", 1.02, True),  # what is in use and what there is were not read at one moment
        ("kv.usage", NAN, True),  # unknown by itself
        ("kv.usage", 99.5, False),  # per cent
        ("kv.usage", 2.0, False),  # as well, of an all but empty one
        ("gpu.memory_used_ratio", -1.0, False),
        ("process.cpu_ratio", 3.5, True),  # of several processors
        ("error.ratio", 1.4, True),  # a quotient: a queue that drains answers more than comes
        ("queue.depth", 99.5, True),
    ],
)
def test_what_is_believed(signal: str, value: float, believed: bool) -> None:
    evidence = page(signal, value)
    found = drop_impossible_shares(evidence)
    if believed:
        assert found is evidence
        return
    (gap,) = found.gaps
    assert not found.readings
    assert (gap.signals, gap.subject, gap.origin) == ((signal,), "model/a", Origin("page", "line 3"))
    assert f"{signal} is {value:.4g}" in gap.reason
    assert derive(found) == derive(evidence)


def test_a_course_that_cannot_be_takes_the_value_along() -> None:
    course = Series("kv.usage", "model/a", (1.0, 2.0), (0.4, 40.0), Origin("page"))
    other = Reading("kv.usage", "model/b", 0.4, Origin("page"))
    evidence = Evidence.merge([page("kv.usage", 0.4), Evidence(series=(course,), readings=(other,))])
    found = drop_impossible_shares(evidence)
    assert (found.readings, found.series, len(found.gaps)) == ((other,), (), 1)
