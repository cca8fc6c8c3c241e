"""`diagnose FILE…`: files of any kind together, folders, standard input, a bundle alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from latdoctor.cli import named_files
from latdoctor.collectors.file_kinds import recognise
from tests.cli.running import run

PAGE = '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name="m"} 3\n'
KERNEL = "[ 1843.308145] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
QUERY = """
==============NVSMI LOG==============

Timestamp                                 : Thu Jan 15 02:04:13 2026
Driver Version                            : 580.95.05

Attached GPUs                             : 2
GPU 00000000:0B:00.0
    Performance State                     : P0
    Temperature
        GPU Current Temp                  : 61 C
GPU 00000000:0C:00.0
    Performance State                     : P0
    Temperature
        GPU Current Temp                  : N/A
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "page").write_text(PAGE)
    (tmp_path / "kern").write_text(KERNEL)
    (tmp_path / "gpu.txt").write_text(QUERY)
    return tmp_path


def collectors_that_read(*arguments: str) -> set[str]:
    outcome = run(["diagnose", *arguments, "-o", "json"])
    assert outcome.code in (0, 3, 4), outcome.err
    return {row["collector"] for row in json.loads(outcome.out)["coverage"] if row["status"] in ("read", "partly")}


def test_files_of_different_kinds_are_read_together(folder: Path) -> None:
    expected = {"prometheus", "logs", "documents"}
    assert collectors_that_read(*(str(path) for path in sorted(folder.iterdir()))) == expected
    assert collectors_that_read(str(folder)) == expected


def test_a_file_without_an_option_joins_those_with_one(folder: Path) -> None:
    assert collectors_that_read("--log", str(folder / "kern"), str(folder / "page")) == {"prometheus", "logs"}


def test_standard_input_is_recognised_and_named(folder: Path) -> None:
    command = [sys.executable, "-m", "latdoctor", "diagnose", "-", "-o", "json"]
    done = subprocess.run(command, input=KERNEL, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert answer["causes"][0]["id"] == "infra.gpu.lost"
    assert answer["target"].startswith("stdin")


def test_a_pasted_text_of_a_log_and_a_table_is_split(folder: Path) -> None:
    (folder / "paste").write_text(f"it hangs since noon:\n\n{KERNEL}\n$ nvidia-smi -q\n{QUERY}")
    answer = json.loads(run(["diagnose", str(folder / "paste"), "-o", "json"]).out)
    assert answer["causes"][0]["id"] == "infra.gpu.lost"
    assert {one["signal"] for one in answer["vitals"]} >= {"gpu.temperature"}


@pytest.mark.parametrize("first", ["kern", "gpu.txt"])
def test_the_order_of_the_parts_of_a_paste_does_not_matter(folder: Path, first: str) -> None:
    parts = sorted((folder / "kern", folder / "gpu.txt"), key=lambda path: path.name != first)
    dated = "Jan 15 02:03:41 node-7 kernel: NVRM: Xid (PCI:0000:0b:00): 119, pid=1, name=x, Timeout waiting for RPC\n"
    (folder / "kern").write_text(dated)
    (folder / "paste").write_text("\n".join(path.read_text() for path in parts))
    answer = json.loads(run(["diagnose", str(folder / "paste"), "-o", "json"]).out)
    assert answer["causes"][0]["id"] == "infra.gpu.xid-fault"


def test_an_extract_in_a_pasted_text_clears_nothing(folder: Path) -> None:
    answer = json.loads(run(["diagnose", str(folder / "gpu.txt"), "-o", "json"]).out)
    log_checks = {"gpu-xid", "gpu-fell-off-bus", "cuda-calls-fail", "oom-killer-ran"}
    assert not [one for one in answer["checks"] if one["id"] in log_checks and one["status"] == "clear"]


def test_a_bundle_beside_other_files_is_refused(folder: Path) -> None:
    (folder / "old.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd....")
    outcome = run(["diagnose", str(folder)])
    assert outcome.code == 2
    assert "a bundle" in outcome.err


def test_what_a_program_mentions_did_not_happen(tmp_path: Path) -> None:
    program = 'import time\nimport requests\n\ndef ask():\n    print("x")  # CUDA out of memory seen here\n'
    (tmp_path / "ask.py").write_text(program)
    outcome = run(["diagnose", str(tmp_path / "ask.py")])
    assert outcome.code == 1
    assert "it looks like source code" in outcome.err


def test_a_text_in_which_nothing_is_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello, it is slow\n")
    outcome = run(["diagnose", str(tmp_path / "x")])
    assert outcome.code == 1
    assert "its only line is not known" in outcome.err


def test_verbose_says_what_each_file_is_taken_for(folder: Path) -> None:
    outcome = run(["diagnose", str(folder), "-v"])
    assert f"{folder / 'gpu.txt'}: read as output of a command" in outcome.err
    assert f"{folder / 'kern'}: read as a log" in outcome.err
    assert f"{folder / 'page'}: read as a metrics page" in outcome.err


def test_a_document_of_which_nothing_can_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name')
    outcome = run(["diagnose", str(tmp_path / "cut.json")])
    assert outcome.code == 1
    assert "an answer of the Prometheus API" in " ".join(outcome.err.split())


@pytest.mark.parametrize("verbosity", [(), ("-v",)])
@pytest.mark.parametrize("names", [("kern",), ("kern", "page", "gpu.txt")])
def test_every_file_is_recognised_once(
    names: tuple[str, ...], verbosity: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recognised: list[str] = []

    def counting(path: Path) -> object:
        recognised.append(path.name)
        return recognise(path)

    monkeypatch.setattr(named_files, "recognise", counting)
    assert run(["diagnose", *verbosity, *(str(folder / name) for name in names)]).code in (0, 3, 4)
    assert recognised == list(names)


@pytest.mark.parametrize(
    ("names", "target"),
    [(("kern",), "kern"), (("kern", "page"), "page and 1 more"), (("page", "kern", "gpu.txt"), "page and 2 more")],
)
def test_the_answer_is_named_after_all_files_that_it_is_about(
    names: tuple[str, ...], target: str, folder: Path
) -> None:
    document = json.loads(run(["diagnose", *(str(folder / name) for name in names), "-o", "json"]).out)
    assert document["target"] == target
    assert target in run(["diagnose", *(str(folder / name) for name in names)]).out.splitlines()[1]
