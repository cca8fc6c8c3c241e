"""How much worse a version in service is, by counts: at the least, and only with enough of them."""

from __future__ import annotations

import pytest

from latdoctor.detectors.version_outcomes import ACCURACY, ERRORS, WORST, version_outcomes
from latdoctor.evidence.model import Evidence, Origin, Reading, Window

COUNTS = ("version.requests", "version.errors", "version.probes", "version.wrong_probes")


def evidence(**versions: tuple[int, int, int, int]) -> Evidence:
    """By version: requests and errors of the window, probes and wrong ones since the start."""
    window = Window(0.0, 10.0)
    return Evidence(
        readings=tuple(
            Reading(signal, "server/a", float(count), Origin("pages", signal), window, (("model_version", version),))
            for version, counts in versions.items()
            for signal, count in zip(COUNTS, counts, strict=True)
        )
    )


def derived(given: Evidence) -> dict[str, float | str]:
    return {one.signal: one.value for one in version_outcomes(given).readings}


@pytest.mark.parametrize(
    ("versions", "errors", "accuracy", "worst"),
    [
        ({"v1": (900, 2, 200, 4), "v2": (100, 12, 200, 5)}, (0.02, 0.12), (0, 0), "v2"),
        ({"v1": (900, 2, 200, 4), "v2": (100, 0, 200, 80)}, (0, 0), (0.2, 0.4), "v2"),
        ({"v1": (900, 2, 200, 4), "v2": (100, 0, 200, 5)}, (0, 0), (0, 0), None),
        # A full cut-over: the version before has its answers to the probe set, and no requests.
        ({"v1": (0, 0, 200, 4), "v2": (900, 9, 100, 60)}, None, (0.3, 0.6), "v2"),
        # Back again: the bad version is history.
        ({"v1": (900, 2, 300, 4), "v2": (0, 0, 100, 60)}, None, (0, 0), "v1"),
    ],
)  # fmt: skip
def test_the_worst_version_in_service_is_compared(
    versions: dict[str, tuple[int, int, int, int]],
    errors: tuple[float, float] | None,
    accuracy: tuple[float, float],
    worst: str | None,
) -> None:
    found = derived(evidence(**versions))
    for signal, bounds in ((ERRORS, errors), (ACCURACY, accuracy)):
        if bounds is None:
            assert signal not in found
        else:
            assert bounds[0] <= float(found[signal]) <= bounds[1]
    if worst is not None:
        assert found[WORST] == worst


@pytest.mark.parametrize(
    "versions",
    [
        {"v2": (900, 500, 200, 100)},  # one version
        {"v1": (900, 0, 0, 0), "v2": (5, 5, 5, 5)},  # too few
        {},
    ],
)
def test_nothing_is_derived_from_too_little(versions: dict[str, tuple[int, int, int, int]]) -> None:
    assert derived(evidence(**versions)) == {}
