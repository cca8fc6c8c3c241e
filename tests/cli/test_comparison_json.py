"""`bundle diff`, `baseline` and `bundle inspect` as JSON: nothing that the text has is missing from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run

FIXTURES = Path(__file__).parents[2] / "fixtures"
NO_FAULT, BURST = (str(FIXTURES / "incidents" / f"{name}.tar.zst") for name in ("no-fault", "burst"))
BASELINE = str(FIXTURES / "baselines" / "reference.json")


def _document(*arguments: str) -> dict[str, Any]:
    outcome = run([*arguments, "-o", "json"])
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert found["schema_version"] == "1"
    return dict(found)


@pytest.mark.parametrize("command", [("bundle", "diff", NO_FAULT, BURST), ("baseline", "compare", BASELINE, BURST)])
def test_a_comparison(command: tuple[str, ...]) -> None:
    found = _document(*command)
    assert found["speed"]["pace"] == "slower"
    assert found["speed"]["signal"] == "latency.p99"
    assert found["speed"]["change_percent"] == pytest.approx(2578, abs=1)
    assert [one["id"] for one in found["causes"] if one["named"]] == ["app.load.burst"]
    queue = next(one for one in found["values"] if one["signal"] == "queue.depth")
    assert (queue["differs"], queue["trend"]) == (True, "worse")
    table = run([*command, "-v"]).out
    assert table.count("\n") >= len([one for one in found["values"] if None not in (one["before"], one["after"])])


def test_a_baseline_and_a_bundle() -> None:
    assert len(_document("baseline", "show", BASELINE)["values"]) == 146
    contents = _document("bundle", "inspect", BURST)
    assert contents["target"] == "reference"
    assert len(contents["artifacts"]) == 35
    assert contents["redaction"] is not None
