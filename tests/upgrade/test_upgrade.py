"""What latdoctor 0.1.0 wrote (v1/README.md) is read by the present version, and its unfinished run is ended by it.

Everything goes through the command line and is looked up by ids and numbers, so that no name in the code, no field of
a JSON document and no sentence has to stay as it was.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
import zstandard

from latdoctor.cli.main import main
from tests.upgrade.stub import CONFIG, URL, Stub, served

V1 = Path(__file__).parent / "v1"
INCIDENT = "inc-20261125-0704-d909"
ROLLED_BACK, VERIFIED, UNFINISHED = "20261125-070449-83410a", "20261125-070502-f690db", "20261125-070521-9c0877"
PLAYBOOKS = {ROLLED_BACK: "upgrade.scheduler", VERIFIED: "upgrade.scheduler", UNFINISHED: "upgrade.lanes"}
NOTE = "calls have become longer since the sale began"
CAUSES = ["app.batching.long-alone", "framework.alloc.storm"]
STAGES = ["confirmed", "diagnosed", "located", "mitigated", "verified"]
REFUSED, CRITICAL = 5, 3  # exit codes
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")  # of an entry of the journal
NUMBER = re.compile(r"-?\d+\.\d{3,}")  # a measured one
SIGNAL = re.compile(r"^(\S+/\S+) +([a-z]\w*(?:\.\w+)+)", re.MULTILINE)  # a row of a baseline: subject and signal


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run(*arguments: str, code: int = 0) -> str:
    """What `latdoctor ARGUMENTS` prints; it has to leave with `code`."""
    outcome = _outcome(arguments)
    assert outcome.code == code, outcome
    return outcome.out


def _outcome(arguments: Sequence[str]) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.object(sys, "argv", ["latdoctor", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
    return Outcome(code, out.getvalue(), err.getvalue())


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the state folder, in use."""
    copied = Path(shutil.copytree(V1 / "state", tmp_path / "state"))
    copied.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LATDOCTOR_STATE", str(copied))
    monkeypatch.setenv("LATDOCTOR_ADMIN_TOKEN", "upgrade")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    return copied


@pytest.fixture
def diagnosis(tmp_path: Path) -> str:
    path = tmp_path / "diagnosis.json"
    path.write_bytes(zstandard.ZstdDecompressor().decompress((V1 / "diagnosis.json.zst").read_bytes()))
    return str(path)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def untouched(state: Path) -> Iterator[None]:
    before = contents(state)
    yield
    assert contents(state) == before


# --- the journal


@pytest.mark.usefixtures("untouched")
def test_runs_are_listed_and_shown() -> None:
    for output in ("text", "json"):
        listed = run("runs", "list", "-o", output)
        assert [name for name in PLAYBOOKS if name not in listed] == []
    for name, playbook in PLAYBOOKS.items():
        for output in ("text", "json"):
            shown = run("runs", "show", name, "-o", output)
            assert playbook in shown
            assert URL in shown
    assert "token-budget" in run("runs", "show", VERIFIED)
    assert "governance.lanes" in run("runs", "show", UNFINISHED)
    assert "recover" in run("runs", "show", UNFINISHED)


@pytest.mark.usefixtures("untouched")
def test_the_journal_verifies() -> None:
    assert DIGEST.findall(run("runs", "verify"))


@pytest.mark.usefixtures("untouched")
def test_incidents_are_listed_and_shown() -> None:
    for output in ("text", "json"):
        assert INCIDENT in run("incidents", "list", "-o", output)
        shown = run("incidents", "show", INCIDENT, "-o", output)
        assert [name for name in (INCIDENT, "upgrade.scheduler", "InferenceP99OverSLO") if name not in shown] == []
    assert [cause for cause in CAUSES if f'"{cause}"' not in shown] == []  # in the document


@pytest.mark.usefixtures("untouched")
def test_the_status_of_the_procedure_is_told() -> None:
    text, document = run("sop", "status"), run("sop", "status", "-o", "json")
    for told in (text, document):
        assert [name for name in (INCIDENT, NOTE, VERIFIED) if name not in _unbroken(told)] == []
    assert [name for name in (*STAGES, *CAUSES) if f'"{name}"' not in document] == []
    assert NOTE in _unbroken(run("sop", "export", "--incident", INCIDENT))


@pytest.mark.usefixtures("untouched")
def test_the_timeline_has_the_same_entries() -> None:
    saved = (V1 / "timeline.json").read_text(encoding="utf-8")
    told = run("timeline", "--incident", INCIDENT, "--format", "json")
    assert INCIDENT in json.dumps(json.loads(told))
    assert len(set(DIGEST.findall(saved))) > 40
    assert set(DIGEST.findall(told)) == set(DIGEST.findall(saved))
    assert len(set(NUMBER.findall(saved))) > 200
    assert set(NUMBER.findall(saved)) <= set(NUMBER.findall(told))
    for form in ("text", "markdown", "cloudevents", "html"):
        page = run("timeline", "--incident", INCIDENT, "--format", form)
        assert VERIFIED in page
    assert UNFINISHED in run("timeline", "--run", UNFINISHED, "--format", "json")


@pytest.mark.usefixtures("untouched")
def test_looks_kept_by_incidents_and_runs_are_diagnosed(state: Path) -> None:
    kept = sorted(state.rglob("*.tar.zst"))
    assert len(kept) == 5
    for bundle in kept:
        assert _outcome(["diagnose", str(bundle), "--no-incident", "-o", "json"]).code in (0, CRITICAL, 4)
    promo_rush = run("diagnose", str(kept[1]), "--no-incident", "-o", "json", code=CRITICAL)
    assert [cause["id"] for cause in json.loads(promo_rush)["causes"]][:2] == CAUSES


# --- files


@pytest.mark.parametrize(
    ("bundle", "cause"), [("bundle", "framework.launch.bound"), ("bundle.tar.zst", "infra.gpu.thermal-throttle")]
)
def test_a_bundle_is_diagnosed(bundle: str, cause: str) -> None:
    document = json.loads(run("diagnose", str(V1 / bundle), "--no-incident", "-o", "json", code=CRITICAL))
    assert document["causes"][0]["id"] == cause
    assert cause in run("diagnose", str(V1 / bundle), "--no-incident", code=CRITICAL)
    run("bundle", "inspect", str(V1 / bundle))


def test_a_baseline_is_shown_and_compared() -> None:
    baseline = str(V1 / "baseline.json")
    shown = SIGNAL.findall(run("baseline", "show", baseline, "-v"))
    assert len(shown) == 146
    assert [signal for _, signal in shown].count("latency.p99") >= 1
    compared = SIGNAL.findall(run("baseline", "compare", baseline, str(V1 / "bundle"), "-v"))
    assert "latency.p99" in [signal for _, signal in compared]
    page = str(V1 / "bundle" / "artifacts" / "prometheus" / "saved-2-metrics-10.prom")
    document = run("diagnose", "--metrics", page, "--baseline", baseline, "--no-incident", "-o", "json", code=4)
    assert "baseline" in document


def test_a_saved_diagnosis_is_compared_with_incidents(diagnosis: str) -> None:
    assert INCIDENT in run("incidents", "similar", diagnosis)


@pytest.mark.parametrize("apply", [False, True])
def test_a_saved_plan_is_read_and_refused_as_its_playbook_has_changed(apply: bool) -> None:
    plan = ["remediate", "--plan", str(V1 / "plan.json"), "--server", URL, "--no-nvml", "--no-incident"]
    with served(Stub()) as stub:
        told = " ".join(run(*plan, *(["--apply", "--yes"] if apply else []), code=REFUSED).split())
        assert "the saved plan is not what playbook, parameters and configuration give now: playbook_digest: " in told
        assert (stub.config, stub.revision) == (CONFIG, 1)


@pytest.mark.parametrize("apply", [False, True])
def test_a_saved_diagnosis_is_planned_for_and_no_longer_applied(diagnosis: str, apply: bool) -> None:
    plan = ["remediate", "--from", diagnosis, "--admin", URL, "--server", URL, "--no-nvml", "--no-incident"]
    with served(Stub()) as stub:
        told = run(*plan, *(["--apply", "--yes"] if apply else []), code=REFUSED if apply else 0)
        assert "promo-rush-sop" in told
        assert (stub.config, stub.revision) == (CONFIG, 1)


# --- the unfinished run


@pytest.mark.parametrize("arrived", [True, False], ids=["its change has arrived", "its change was lost"])
def test_the_unfinished_run_is_recovered(arrived: bool) -> None:
    config = copy.deepcopy(CONFIG)
    config["batching"]["scheduler"] = "token-budget"  # of the run that verified
    config["governance"]["lanes"] = arrived
    with served(Stub(config)) as stub:
        assert UNFINISHED in run("recover", "-o", "json")
        assert stub.config["governance"]["lanes"] is False
        assert stub.config["batching"]["scheduler"] == "token-budget"
        revision = stub.revision
        assert UNFINISHED not in run("recover", "-o", "json")
        assert stub.revision == revision
        run("runs", "verify")
        assert UNFINISHED in run("runs", "show", UNFINISHED)


def test_the_verified_run_is_taken_back() -> None:
    config = copy.deepcopy(CONFIG)
    config["batching"]["scheduler"] = "token-budget"
    with served(Stub(config)) as stub:
        run("recover")
        run("rollback", VERIFIED)
        assert stub.config == CONFIG
        run("rollback", VERIFIED, code=REFUSED)
        run("runs", "verify")


def _unbroken(text: str) -> str:
    """`text` without its line breaks."""
    return " ".join(text.split())
