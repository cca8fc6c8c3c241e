"""One incident as six files of different kinds: a page, two logs, a trace, `kubectl describe` and `nvidia-smi -q`.

The texts are made up, in the forms that the tools write.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import run

FILES = Path(__file__).parent / "joined_incident"
KERNELS = 50
XID_AT, POD_ENDED_AT = 1768442621.5, 1768442624.0  # unix seconds, in kernel.log and pod.txt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(FILES, tmp_path / "incident")
    (tmp_path / "incident" / "trace.json").write_text(json.dumps({"traceEvents": list(_trace_events())}))
    return tmp_path / "incident"


def _trace_events() -> Any:
    for number in range(KERNELS):
        correlation = {"correlation": number + 1}
        yield {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1000 + number * 100, "dur": 80,
               "args": {"device": 0, "stream": 7} | correlation}  # fmt: skip
        yield {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
               "ts": 990 + number * 100, "dur": 5, "args": correlation}  # fmt: skip


@pytest.fixture
def document(folder: Path) -> dict[str, Any]:
    outcome = run(["diagnose", *(str(path) for path in sorted(folder.iterdir())), "-o", "json"])
    assert outcome.code == 3, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_every_file_of_an_incident_is_read(document: dict[str, Any]) -> None:
    read = {row["collector"] for row in document["coverage"] if row["status"] in ("read", "partly")}
    assert read >= {"prometheus", "logs", "torch_trace", "documents"}


def test_a_gpu_is_one_subject_in_the_kernel_log_the_trace_and_the_command(document: dict[str, Any]) -> None:
    subjects = {name for check in document["checks"] for name in check["subjects"]}
    assert {name for name in subjects if name.startswith("gpu/")} == {"gpu/0", "gpu/1"}
    first = document["causes"][0]
    assert (first["id"], first["named"]) == ("infra.gpu.xid-fault", True)
    assert "gpu/0" in first["subjects"]


def test_the_times_of_all_files_are_one_window(document: dict[str, Any]) -> None:
    window = document["evidence_window"]
    assert window["start"] < XID_AT < POD_ENDED_AT <= window["end"]


def test_a_folder_is_the_same_as_its_files(folder: Path, document: dict[str, Any]) -> None:
    whole = json.loads(run(["diagnose", str(folder), "-o", "json"]).out)
    assert [cause["id"] for cause in whole["causes"]] == [cause["id"] for cause in document["causes"]]


def test_the_answer_for_an_incident_of_many_files_is_one_screen(folder: Path) -> None:
    lines = run(["diagnose", str(folder)]).out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
