"""`rules test --junit`, `rules diff` and overlays, as a user of their own rules meets them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from latdoctor.resources import folder
from tests.cli.running import run

INCIDENTS = Path(__file__).parents[2] / "fixtures" / "incidents"
HEAT = "infra.gpu.thermal-throttle"
OVERLAY = """
- finding: gpu-clocks-cut-by-heat
  limits: {gpu.sm_clock_ratio: {limit: 5%, ramp: [8%, 2%]}}
  rationale: these boards are capped on purpose
"""


@pytest.fixture(autouse=True)
def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


@pytest.fixture
def site() -> str:
    """A folder of rules with an overlay in it."""
    Path("site/overlays").mkdir(parents=True)
    Path("site/overlays/hall.yaml").write_text(OVERLAY)
    return "site"


def test_a_site_threshold_stands_in_the_report_and_in_explain(site: str) -> None:
    said = run(["diagnose", str(INCIDENTS / "gpu-thermal"), "--rules", site, "-vv"])
    assert re.search(r"limit\s+<\s+5\s+%\)\s+\[.*?;\s+site\s+threshold,\s+shipped\s+<\s+75\s+%\]", said.out, re.DOTALL)
    assert "\nof the findings, 1 judged by site thresholds (-v)\n" in said.out
    assert "site threshold" not in run(["diagnose", str(INCIDENTS / "gpu-thermal"), "-vv"]).out
    told = " ".join(run(["explain", "gpu-clocks-cut-by-heat", "--rules", site]).out.split())
    assert (
        "Site thresholds gpu.sm_clock_ratio < 5%, shipped as gpu.sm_clock_ratio < 75%: these boards are capped on "
        "purpose (site/overlays/hall.yaml:3)"
    ) in told


def test_shipped_cases_are_judged_by_shipped_limits_and_own_ones_by_the_overlays(site: str) -> None:
    assert run(["rules", "lint", "--rules", site]).code == 0
    shutil.copytree(folder("rules") / "cases", "site/cases")
    for path in Path("site/cases").glob("*.yaml"):
        if path.stem != HEAT:
            path.unlink()
    others = run(["rules", "test", "--rules", site, "--cause", "app.load.burst"])
    assert others.code == 0
    failed = run(["rules", "test", "--rules", site, "--cause", HEAT])
    assert failed.code == 3
    *failures, last = failed.out.splitlines()
    assert failures
    assert [line for line in failures if not line.startswith(f"site/cases/{HEAT}.yaml:")] == []
    assert int(last.split()[0]) > 0  # the shipped ones pass


def test_a_wrong_overlay_is_told_with_its_line(site: str) -> None:
    Path("site/overlays/hall.yaml").write_text(OVERLAY.replace("gpu.sm_clock_ratio", "gpu.clock"))
    said = run(["diagnose", str(INCIDENTS / "gpu-thermal"), "--rules", site])
    assert said.code == 2
    assert said.err.startswith("site/overlays/hall.yaml:3: gpu-clocks-cut-by-heat compares no 'gpu.clock', but ")


def test_junit_is_written_for_what_passed_and_what_failed() -> None:
    command = ["rules", "test", "--cause", "app.load.burst", "--cause", HEAT, "--junit", "out/rules.xml"]
    assert run(command).code == 0
    root = ElementTree.fromstring(Path("out/rules.xml").read_bytes())  # noqa: S314 — written by ourselves
    assert int(root.get("tests") or 0) > 2
    assert root.get("failures") == "0"
    case = root[0][0]
    assert Path(case.get("file") or "").is_file()
    assert f"cases/{case.get('classname')}.yaml" in (case.get("file") or "")


def test_a_cause_without_cases_passes_nothing() -> None:
    said = run(["rules", "test", "--cause", "app.load.bursts"])
    assert (said.code, said.out) == (2, "")
    assert "no case of this cause" in said.err


def test_a_junit_file_that_cannot_be_written_is_told_before_anything_runs() -> None:
    Path("file").write_text("")
    said = run(["rules", "test", "--junit", "file/rules.xml"])
    assert (said.code, said.out) == (2, "")
    assert "the JUnit report cannot be written: Not a directory" in said.err


def test_the_same_rules_change_nothing() -> None:
    copied = shutil.copytree(folder("rules"), "copy")
    said = run(["rules", "diff", str(copied), "--bundles", str(INCIDENTS / "gpu-thermal"), "--fail-on-change"])
    assert said.code == 0, said.err
    assert said.out.startswith("old: the shipped rules (")
    assert "The rules say the same." in said.out
    assert "0 of 1 answers become another; 0 stay and move, 1 stay as they are" in said.out
    assert said.out.endswith("Next: latdoctor rules test, once they are in place of the shipped ones\n")


def test_one_edited_shipped_cause_is_no_whole_set_and_says_so() -> None:
    (Path("one") / "causes").mkdir(parents=True)
    shutil.copy(folder("rules") / "causes" / f"{HEAT}.yaml", "one/causes")
    said = run(["rules", "diff", "one"])
    assert (said.code, said.out) == (2, "")
    told = " ".join(said.err.split())
    assert f"the cause {HEAT} names an unknown finding" in told
    assert "replaces all shipped rules: copy the others into it too, or make your changes in an overlay" in told


def test_what_an_overlay_does_to_a_recorded_incident(site: str) -> None:
    said = run(["rules", "diff", site, "--bundles", str(INCIDENTS / "gpu-thermal"), "--fail-on-change"])
    assert "~ finding gpu-clocks-cut-by-heat" in said.out
    assert "gpu-clocks-cut-by-heat: fired → clear" in said.out
    assert re.search(rf"{HEAT}: \S+ \S+ ?%? \(named, rank 1\) → ", said.out)
    assert said.out.endswith(f"Next: latdoctor rules test --rules {site}\n")
    assert (said.code == 3) == ("1 of 1 answers become another" in said.out)
    document = json.loads(run(["rules", "diff", site, "--bundles", str(INCIDENTS / "gpu-thermal"), "-o", "json"]).out)
    assert document["schema_version"] == "1"
    (rule,) = document["rules"]
    assert (rule["kind"], rule["id"], rule["what"]) == ("finding", "gpu-clocks-cut-by-heat", "changed")
    (incident,) = document["incidents"]
    shifts = {shift["id"]: shift for shift in incident["contrast"]["causes"]}
    assert shifts[HEAT]["after"] is None or shifts[HEAT]["after"]["probability"] < shifts[HEAT]["before"]["probability"]


def test_a_cause_that_is_removed_is_no_longer_the_answer() -> None:
    fewer = Path(shutil.copytree(folder("rules"), "fewer"))
    (fewer / "causes" / f"{HEAT}.yaml").unlink()
    said = run(["rules", "diff", str(folder("rules")), "fewer", "--bundles", str(INCIDENTS), "--fail-on-change"])
    assert said.code == 3
    assert f"- cause {HEAT}" in said.out
    assert re.search(r"critical: infra\.gpu\.thermal-throttle → ", said.out)
    assert "1 of " in said.out


def test_without_bundles_only_the_rules_are_compared(site: str) -> None:
    said = run(["rules", "diff", site])
    assert said.code == 0
    assert "Incidents" not in said.out
    assert "Next: name recorded incidents" in said.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "c"], "3 folders of rules are named"),
        (["nowhere"], "is not a folder of rules"),
        (["site", "--bundles", "site"], "site: contains no bundle"),
        (["site", "--bundles", "gone"], "gone"),
    ],
)
def test_what_cannot_be_compared_is_told(site: str, arguments: list[str], message: str) -> None:
    said = run(["rules", "diff", *arguments])
    assert (said.code, said.out) == (2, "")
    assert message in said.err


def test_a_cause_that_the_site_disabled_is_told_where_it_is_missing(site: str) -> None:
    why = "the hall is hot by design, and everybody who works in it knows"
    Path("site/overlays/hall.yaml").write_text(f"- {{cause: {HEAT}, disable: true, rationale: {why!r}}}\n")
    said = run(["diagnose", str(INCIDENTS / "gpu-thermal"), "--rules", site, "-v"])
    assert f"not ranked, disabled by the site: {HEAT}" in " ".join(said.out.split())
    changed = " ".join(run(["rules", "diff", site]).out.split())
    assert f"~ cause {HEAT} disabled by the site: {why}" in changed


def test_what_shall_fail_on_a_change_needs_incidents(site: str) -> None:
    said = run(["rules", "diff", site, "--fail-on-change"])
    assert said.code == 2
    assert "name them: --bundles PATH" in said.err
