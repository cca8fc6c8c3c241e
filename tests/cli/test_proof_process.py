"""What is journaled of the sources of a run is what the process that goes on with its proof observes."""

from __future__ import annotations

from pathlib import Path

import pytest

from latdoctor.cli import proof_process
from latdoctor.cli.options import SourceOptions
from latdoctor.cli.resolve_request import resolve_request
from latdoctor.errors import BundleError
from latdoctor.evidence.baseline import Baseline
from latdoctor.remediation.pending_proof import Sources

RECORDED = Path(__file__).parents[2] / "fixtures" / "baselines" / "reference.json"


def sources(baseline: Path) -> Sources:
    given = SourceOptions(server=("http://127.0.0.1:9",), baseline=baseline)
    return proof_process.sources_of(resolve_request(given), (), ())


def test_the_baseline_of_a_run_is_that_of_its_proof(monkeypatch: pytest.MonkeyPatch, apart: Path) -> None:
    seen: list[Baseline] = []
    monkeypatch.setattr(proof_process, "observer", lambda request, context, baseline, rules: seen.append(baseline))
    (apart / "healthy.json").write_bytes(RECORDED.read_bytes())
    known = sources(Path("healthy.json"))
    monkeypatch.chdir("/")  # the process that goes on stands elsewhere
    proof_process.observe_again(known)
    assert [one.target for one in seen] == [resolve_request(SourceOptions(baseline=RECORDED)).baseline.target]  # type: ignore[union-attr]


def test_a_baseline_that_is_gone_is_an_error_and_not_no_baseline(apart: Path) -> None:
    (apart / "healthy.json").write_bytes(RECORDED.read_bytes())
    known = sources(Path("healthy.json"))
    (apart / "healthy.json").unlink()
    with pytest.raises(BundleError):
        proof_process.observe_again(known)
