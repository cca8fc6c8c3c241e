"""What a paste broke over lines, cut or filtered: it is read where it can be joined, and else nothing is ruled out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from latdoctor.collectors.logs.collector import parse
from latdoctor.evidence.bundle import Artifact

CASES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("incomplete_logs.yaml").read_text())


@pytest.mark.parametrize("name", CASES)
def test_a_part_of_a_log_rules_out_only_what_was_searched(name: str) -> None:
    case = CASES[name]
    found = parse([Artifact("logs/x", "logs", "x", "x.log", 1.8e9, case["text"].encode())])
    assert [one.fields["code"] for one in found.events if one.signal == "log.xid"] == case.get("codes", [])
    assert sum(one.signal == "log.oom_kill" for one in found.events) == case.get("kills", 0)
    if "searched" in case:
        assert {signal for signal, _ in found.looked} == set(case["searched"])
        assert found.gaps
