"""Every catalogued signal comes from somewhere: a dialect, a collector or a detector, as these say themselves."""

from __future__ import annotations

import pytest

from latdoctor.detectors import DETECTORS
from latdoctor.detectors.catalog import BY_DETECTOR, derivable_signals
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.rule_tests import read_cases
from latdoctor.evidence.catalogue import TIERS, catalogue
from latdoctor.evidence.model import Evidence
from latdoctor.report.reference_pages import page, sources
from latdoctor.resources import folder

FEWEST = 300


def test_every_signal_comes_from_somewhere() -> None:
    assert [name for name, where in sources().items() if not where] == []


def test_there_are_signals_of_every_tier() -> None:
    reached = [name for name, where in sources().items() if where]
    assert len(reached) >= FEWEST
    tiers = {tier: sum(1 for name in reached if catalogue()[name].tier == tier) for tier in TIERS}
    assert min(tiers.values()) >= FEWEST / 6, tiers


def test_every_detector_says_what_it_gives() -> None:
    assert list(BY_DETECTOR) == [detector.__name__ for detector in DETECTORS]


def test_no_detector_gives_more_than_it_says() -> None:
    """On the evidence of every rule's cases, which hold most of what there is."""
    cases = read_cases([folder("rules") / "cases"], rule_loader.shipped())
    assert cases
    everything = derivable_signals(frozenset(catalogue()))
    given: dict[str, set[str]] = {name: set() for name in BY_DETECTOR}
    for case in cases:
        evidence = case.case.evidence
        for detector in DETECTORS:
            new = detector(evidence)
            given[detector.__name__] |= {one.signal for one in (*new.readings, *new.events)}
            evidence = Evidence.merge([evidence, new])
    more = {name: signals - everything[name] for name, signals in given.items()}
    assert {name: signals for name, signals in more.items() if signals} == {}


def test_what_is_derived_needs_its_sources() -> None:
    assert not any(derivable_signals(frozenset()).values())
    assert "latency.p99" in derivable_signals(frozenset({"latency"}))["quantiles"]
    assert derivable_signals(frozenset({"gpu.sm_clock"}))["quotients"] == frozenset()


@pytest.mark.parametrize("name", ["latency.p99", "gpu.sm_active", "host.disk.busy_ratio", "kv.usage"])
def test_the_page_has_a_row_for_it(name: str) -> None:
    (row,) = (line for line in page().splitlines() if line.startswith(f"| `{name}` |"))
    assert sources()[name][0] in row
    assert catalogue()[name].description in row
