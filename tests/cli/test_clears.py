"""Only what was searched rules a fault out: a kernel log Xids and kills for memory, an application's log CUDA errors.

No other text clears a check of a log, whatever times, levels and words stand in it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latdoctor.collectors.file_kinds import FileKind, recognise
from latdoctor.collectors.logs import SIGNALS
from latdoctor.collectors.logs import collector as logs
from latdoctor.conditions.ast import CountTerm, comparisons
from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from tests.cli.running import run

CASES = Path(__file__).parents[1] / "collectors" / "documents" / "cases"
TEXTS = sorted(path for path in CASES.rglob("*") if path.is_file() and path.suffix not in (".yaml", ".yml"))
TEXTS = [path for path in TEXTS if path.parent.name != "nvidia-bug-report"]  # it contains a whole kernel log
NO_LOGS: dict[str, str] = yaml.safe_load(Path(__file__).with_name("no_logs.yaml").read_text())
# Checks whose result is a count of events in logs.
OF_LOGS = {
    finding.id: {one.left.signal for one in comparisons(finding.when)}
    for finding in shipped().findings
    if any(isinstance(one.left, CountTerm) and one.left.signal in SIGNALS for one in comparisons(finding.when))
    and all(isinstance(one.left, CountTerm) for one in comparisons(finding.when))
}


def cleared(*arguments: str) -> set[str]:
    """The checks of logs that are clear, without those beside one that fired over the same events."""
    outcome = run(["diagnose", *arguments, "-o", "json"])
    if outcome.code == 1:
        return set()  # nothing in it is recognised
    checks = {one["id"]: one["status"] for one in json.loads(outcome.out)["checks"] if one["id"] in OF_LOGS}
    found = {signal for one, status in checks.items() if status == "fired" for signal in OF_LOGS[one]}
    return {one for one, status in checks.items() if status == "clear" and not OF_LOGS[one] & found}


def is_log(path: Path) -> bool:
    found = recognise(path)
    return found is not None and found.kind is FileKind.LOG


def test_there_are_such_checks() -> None:
    assert {"gpu-xid", "gpu-fell-off-bus", "cuda-calls-fail", "driver-mismatch"} <= OF_LOGS.keys()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_output_of_a_command_clears_a_check_of_a_log(path: Path) -> None:
    assert cleared(str(path)) == set()


@pytest.mark.parametrize("option", [(), ("--log",)])
@pytest.mark.parametrize("name", NO_LOGS)
def test_no_text_that_is_no_log_clears_one(name: str, option: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(NO_LOGS[name])
    assert cleared(*option, str(tmp_path / "x.txt")) == set()


FILTERED = """me@gpu-4:~$ sudo dmesg -T | grep -v NVRM
[Fri Nov 20 10:00:00 2026] usb 1-1: new device
[Fri Nov 20 10:00:01 2026] EXT4-fs (sda1): mounted
"""
CUT = "[  310.201200] EXT4-fs (nvme0n1p2): mounted filesystem\n[ 9120.554401] NVRM: Xid (PCI:0000:81:0"


@pytest.mark.parametrize("option", [(), ("--log",)])
def test_the_output_of_a_filter_clears_no_check(option: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(FILTERED)
    assert cleared(*option, str(tmp_path / "x.txt")) == set()


def test_a_log_that_ends_within_a_message_does_not_clear_what_that_may_report(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(CUT)
    assert not {"gpu-xid", "gpu-fell-off-bus"} & cleared(str(tmp_path / "x.txt"))


def test_no_sample_that_is_no_log_clears_one(samples: Path) -> None:
    kinds = ("metrics/**/*", "nvml/**/*", "tensorrt/**/*.json", "tensorrt/**/*.txt", "xid/*")
    files = sorted(path for kind in kinds for path in samples.glob(kind) if path.is_file() and not is_log(path))
    assert len(files) > 10
    wrong = {str(path): found for path in files if (found := cleared(str(path)))}
    assert wrong == {}


def test_no_case_that_is_no_log_clears_one() -> None:
    folder = Path(os.environ.get("LATDOCTOR_CASES", "/nonexistent"))
    if not folder.is_dir():
        pytest.skip("LATDOCTOR_CASES does not name the folder of cases")
    files = [
        path for path in sorted(folder.glob("*/*")) if path.suffix in (".txt", ".csv", ".json") and not is_log(path)
    ]
    assert {str(path): found for path in files if (found := cleared(str(path)))} == {}


_WORDS = st.sampled_from(
    ["cuda", "CUDA Version: 12.4", "INFO", "ERROR", "10:11:12", "2026-02-01", "| 0 |", "Xid", "NVML", "value", "GPU",
     "Memory", "level", "100%", "=====", "a, b, c", "{", "}", "Running", "N/A", "0x3f", "torch", "kernel"]
)  # fmt: skip
_LINES = st.lists(
    st.tuples(
        st.sampled_from(["| ", "name: ", "* ", "GPU ", "total ", "# ", "- ", "<p>"]), st.lists(_WORDS, max_size=8)
    ),
    min_size=2,
    max_size=30,
).map(lambda rows: "\n".join(begin + " ".join(words) for begin, words in rows))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(_LINES)
def test_generated_text_that_is_no_log_counts_as_searched_for_nothing(text: str) -> None:
    try:
        found = logs.READER.parse([Artifact("logs/x", "logs", "x", "x", 1.77e9, text.encode())])
    except SourceError:
        return
    assert found.looked == ()
