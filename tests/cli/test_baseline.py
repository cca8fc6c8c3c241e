"""A baseline is recorded at a healthy time, shown, and compared with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli import pages
from tests.cli.running import checks, diagnosed, run

BUNDLE = str(Path(__file__).parents[2] / "fixtures" / "incidents" / "gpu-thermal")
PAGES = ["--metrics", "first.prom", "--metrics", "last.prom"]
SLOWER = "compute-slower-at-same-batch"


@pytest.fixture(autouse=True)
def _a_healthy_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    _serve(seconds_each=0.2)
    outcome = run(["baseline", "record", *PAGES, "--target", "intent", "--to", "healthy.json"])
    assert outcome.code == 0
    assert outcome.err.startswith(
        "left out: arrival.rate: Triton: the time between the saved pages is unknown, so there is no rate\n"
    )
    assert all(line.startswith("left out: ") for line in outcome.err.splitlines())
    assert re.fullmatch(
        r"\d+ values recorded\. Next: latdoctor diagnose --metrics first\.prom --metrics last\.prom"
        r" --target intent --baseline healthy\.json\n",
        outcome.out,
    )


def _serve(seconds_each: float) -> None:
    """Two pages between which each of 4000 requests took `seconds_each`."""
    before = 81_000
    Path("first.prom").write_bytes(pages.triton(before, seconds_each=seconds_each))
    Path("last.prom").write_bytes(pages.triton(before + 4_000, seconds_each=seconds_each))


def test_what_was_recorded_is_shown() -> None:
    short = run(["baseline", "show", "healthy.json"]).out
    assert short.startswith("intent, recorded 20")
    assert " mean compute time 100 ms\n" in short
    outcome = run(["baseline", "show", "healthy.json", "-v"])
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("intent, recorded 20")
    assert re.search(r"^model/intent\S* +compute\.time\.mean +100 ms$", outcome.out, re.MULTILINE)
    assert f"{len(json.loads(Path('healthy.json').read_text())['values'])} values. Next: " in outcome.out


def test_the_healthy_time_itself_departs_from_nothing() -> None:
    said = diagnosed(*PAGES, "--baseline", "healthy.json", code=4)
    assert SLOWER in checks(said, "clear")
    assert checks(said, "fired") == {}


def test_a_multiple_of_the_baseline_fires() -> None:
    _serve(seconds_each=0.6)
    said = diagnosed(*PAGES, "--baseline", "healthy.json")
    fired = checks(said, "fired")[SLOWER]
    (atom,) = (atom for atom in fired["atoms"] if atom["signal"] == "compute.time.mean")
    assert atom["value"] == pytest.approx(0.3)
    assert atom["limit"] == "140 ms (1.4 x baseline)"
    shown = run(["diagnose", *PAGES, "--baseline", "healthy.json", "-v"]).out
    assert "compute.time.mean = 300 ms (limit > 140 ms (1.4 x baseline))" in " ".join(shown.split())


def test_without_a_baseline_it_cannot_be_told() -> None:
    _serve(seconds_each=0.6)
    check = checks(diagnosed(*PAGES, code=4), "not-evaluated")[SLOWER]
    assert "no baseline given (--baseline FILE)" in check["reason"]


def test_a_bundle_can_be_remembered_and_compared() -> None:
    outcome = run(["baseline", "record", BUNDLE, "--to", "hot.json"])
    assert outcome.code == 0
    assert "this is not a healthy time (critical: infra.gpu.thermal-throttle)" in " ".join(outcome.err.split())
    said = diagnosed(BUNDLE, "--baseline", "hot.json", code=3)
    assert "load-over-baseline" in checks(said, "clear")
    assert "no baseline given (--baseline FILE)" not in {check["reason"] for check in said["checks"]}


def test_a_comparison_of_files_names_them_and_not_now() -> None:
    _serve(seconds_each=0.6)
    outcome = run(["baseline", "compare", "healthy.json", *PAGES])
    assert outcome.out.startswith(
        "SLOWER  mean latency 200 ms → 600 ms (+200 %)\nfirst.prom, last.prom against healthy.json\n"
    )
    assert (
        " Next  latdoctor diagnose --metrics first.prom --metrics last.prom \\\n       --baseline healthy.json\n"
        in outcome.out
    )
