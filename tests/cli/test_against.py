"""`diagnose --against` and `--between`: two moments of one target, two replicas of one look."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli import pages
from tests.cli.running import diagnosed, run

INCIDENT = str(Path(__file__).parents[2] / "fixtures" / "incidents" / "gpu-thermal")
NOW = ["--metrics", "first.prom", "--metrics", "last.prom"]
HEAT = "infra.gpu.thermal-throttle"


@pytest.fixture(autouse=True)
def _two_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    _serve(0.2)
    assert run(["collect", *NOW, "--to", "well"]).code == 0
    _serve(0.6)


def _serve(seconds_each: float) -> None:
    Path("first.prom").write_bytes(pages.triton(81_000, seconds_each=seconds_each))
    Path("last.prom").write_bytes(pages.triton(85_000, seconds_each=seconds_each))


def test_a_moment_does_not_differ_from_itself() -> None:
    found = diagnosed(INCIDENT, "--against", INCIDENT)["against"]
    assert found["contrast"]["causes"] == []
    assert found["contrast"]["checks"] == []
    assert found["values"] == []
    shown = " ".join(run(["diagnose", INCIDENT, "--against", INCIDENT, "-v"]).out.split())
    assert f"now, against {INCIDENT}" in shown.replace(" ", "") or "now, against" in shown
    assert f"critical: {HEAT}, as before" in shown


def test_values_that_moved_stand_in_the_report_and_in_the_document() -> None:
    found = diagnosed(*NOW, "--against", "well")["against"]
    assert (found["name"], found["than"]) == ("now", "well")
    moved = {one["signal"]: (one["before"], one["after"]) for one in found["values"]}
    assert moved["compute.time.mean"] == (pytest.approx(0.1), pytest.approx(0.3))
    shown = " ".join(run(["diagnose", *NOW, "--against", "well", "-v"]).out.split())
    assert "compute.time.mean: 100 ms → 300 ms, 3 times" in shown
    assert "### now, against well" in run(["diagnose", *NOW, "--against", "well", "-o", "markdown"]).out


def test_two_targets_are_no_two_moments_of_one() -> None:
    told = " ".join(run(["diagnose", *NOW, "--against", INCIDENT]).err.split())
    assert "is a bundle of checkout-bot, and this one is of" in told
    assert "is a bundle of" not in run(["diagnose", INCIDENT, "--against", INCIDENT]).err


def test_what_appeared_and_what_went_are_mirrors() -> None:
    there = diagnosed(*NOW, "--slo", "100ms", "--against", INCIDENT)["against"]["contrast"]
    back = diagnosed(INCIDENT, "--slo", "100ms", "--against", "well")["against"]["contrast"]
    assert [answer["kind"] for answer in back["answers"]][1] == "named"
    assert HEAT in {shift["id"] for shift in back["causes"] if shift["after"] and shift["after"]["named"]}
    appeared = {shift["id"] for shift in back["checks"] if shift["after"] == "fired"}
    went = {shift["id"] for shift in there["checks"] if shift["before"] == "fired"}
    assert "gpu-clocks-cut-by-heat" in appeared & went


def test_nothing_is_compared_where_nobody_asked() -> None:
    assert diagnosed(INCIDENT)["against"] is None


def test_one_gpu_against_its_sibling() -> None:
    found = diagnosed(INCIDENT, "--between", "gpu/0", "gpu/1")["against"]
    assert (found["name"], found["than"]) == ("gpu/1", "gpu/0")
    assert "gpu-clocks-cut-by-heat" in {
        shift["id"] for shift in found["contrast"]["checks"] if shift["after"] == "fired"
    }
    ratios = {one["signal"]: one for one in found["values"]}
    assert ratios["gpu.sm_clock"]["after"] < ratios["gpu.sm_clock"]["before"]
    assert all(one["before"] is None or one["after"] is None or one["subject"] == "gpu/1" for one in found["values"])
    shown = run(["diagnose", INCIDENT, "--between", "gpu/0", "gpu/1", "-v"]).out
    assert "gpu/1, against gpu/0" in shown


WRONG = [
    (["--between", "gpu/0", "gpu/7"], "there is no evidence of 'gpu/7'", "did you mean gpu/"),
    (["--between", "gpu/0", "zz"], "there is no evidence of 'zz'", "name two of gpu/0"),
    (["--between", "gpu/0", "gpu/0"], "'gpu/0' is named twice", ""),
    (["--between", "gpu/0", "node/local"], "a gpu and a node have different signals", "two of one kind"),
    (["--against", "nowhere"], "nowhere", ""),
    (["--against", INCIDENT, "--between", "gpu/0", "gpu/1"], "are exclusive", ""),
]


@pytest.mark.parametrize(("arguments", "message", "hint"), WRONG)
def test_what_cannot_be_compared_is_told(arguments: list[str], message: str, hint: str) -> None:
    outcome = run(["diagnose", INCIDENT, *arguments])
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert hint in outcome.err
