"""Warnings of slow calls to other services, and lines that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.collectors.logs.test_engine_lines import read

CASES = yaml.safe_load((Path(__file__).parent / "dependency_lines.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["line"][24:70])
def test_a_slow_call_is_found(case: dict[str, Any]) -> None:
    found = [one.fields for one in read(case["line"].encode()).events if one.signal == "log.dependency_slow"]
    expected = [] if case["seconds"] == "none" else [(case["what"], pytest.approx(case["seconds"]))]
    assert [(one["what"], one["seconds"]) for one in found] == expected
