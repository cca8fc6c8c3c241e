"""The benchmarks import what exists, and their measured processes run."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from bench import harness, timeline

BENCH = Path(harness.__file__).parent
ELSEWHERE = {
    "bento_service",
    "closed_locustfile",
    "litserve_server",
    "ht",
}  # run with packages that are not installed here
MODULES = sorted(
    ".".join(("bench", *path.relative_to(BENCH).with_suffix("").parts))
    for path in BENCH.rglob("*.py")
    if path.stem not in ELSEWHERE
)


@pytest.mark.parametrize("module", MODULES)
def test_each_module_can_be_imported(module: str) -> None:
    assert importlib.import_module(module).__doc__


def test_a_process_is_measured() -> None:
    found = harness.run_process(timeline.RENDER, "text", 20, path=timeline.PATH)
    assert found["result"] > 0
    assert found["wall_s"] >= found["result"]
    assert found["peak_mb"] > 10


def test_results_are_printed_as_text_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"runs": 3, "ratio": {"help": 1.5}, "listed": [1, 2], "machine": {"processors": 2}}
    harness.print_result(found, "text")
    assert capsys.readouterr().out == "runs        3\nratio.help  1.5\n"
    harness.print_result(found, "json")
    assert '"processors": 2' in capsys.readouterr().out
