"""What a baseline is recorded of can be compared with it."""

from __future__ import annotations

import inspect
from pathlib import Path

from latdoctor.cli import baseline
from tests.cli.running import run
from tests.collectors.nsight.synthetic_exports import SMALL, Export
from tests.collectors.torch_trace.synthetic_traces import document, launched


def test_compare_takes_every_source_that_record_takes() -> None:
    of_record = inspect.signature(baseline.record).parameters.keys() - {"to", "force"}
    assert of_record <= inspect.signature(baseline.compare).parameters.keys()


def test_an_export_is_compared_with_an_earlier_one(tmp_path: Path) -> None:
    before = Export().launched(100).written(tmp_path / "run.sqlite", SMALL)
    remembered = str(tmp_path / "b.json")
    assert run(["baseline", "record", "--nsys", str(before), "--to", remembered]).code == 0
    (tmp_path / "later").mkdir()
    after = Export().launched(100, lasts=50_000).written(tmp_path / "later" / "run.sqlite", SMALL)
    outcome = run(["baseline", "compare", remembered, "--nsys", str(after), "-v"])
    assert outcome.code == 0, outcome.err
    assert "gpu.busy_ratio" in outcome.out


def test_a_time_without_its_source_is_refused_as_elsewhere(tmp_path: Path) -> None:
    trace, remembered = tmp_path / "a.json", str(tmp_path / "b.json")
    trace.write_bytes(document(launched(60)))
    assert run(["baseline", "record", "--trace", str(trace), "--to", remembered]).code == 0
    same = run(["baseline", "compare", remembered, "--trace", str(trace), "--since", "1h"])
    assert same.code == run(["diagnose", "--trace", str(trace), "--since", "1h"]).code
