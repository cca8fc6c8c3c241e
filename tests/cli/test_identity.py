"""The same evidence gives the same answer: diagnosed twice, live or replayed, from a folder or an archive."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.pages import counting
from tests.cli.running import diagnosed
from tests.collectors.prometheus.serving import page, served

BUNDLE = Path(__file__).parents[2] / "fixtures" / "incidents" / "gpu-thermal"
OF_THE_RUN = {"run_id", "generated_at"}


def _of_the_evidence(said: dict[str, Any]) -> dict[str, Any]:
    assert said.keys() >= OF_THE_RUN
    return {key: value for key, value in said.items() if key not in OF_THE_RUN}


def test_a_bundle_is_diagnosed_alike_every_time() -> None:
    first, second = diagnosed(str(BUNDLE)), diagnosed(str(BUNDLE))
    assert first["run_id"] != second["run_id"]
    assert _of_the_evidence(first) == _of_the_evidence(second)


def test_two_runs_differ_in_two_lines_at_most() -> None:
    """Byte for byte: the order of keys and of lists is the same too."""
    texts = [json.dumps(diagnosed(str(BUNDLE)), indent=1).splitlines() for _ in range(2)]
    assert len(texts[0]) == len(texts[1])
    differing = [a for a, b in zip(*texts, strict=True) if a != b]
    assert all(any(f'"{key}"' in line for key in OF_THE_RUN) for line in differing)


def _a_trace(folder: Path) -> Path:
    """A second of serving: a hundred launches, each followed by a kernel of 4 µs."""
    events = []
    for n in range(100):
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": n * 10_000}
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": n * 10_000 + 20}
        events += [
            {**launch, "dur": 8, "args": {"correlation": n}},
            {**kernel, "dur": 4, "args": {"correlation": n, "stream": 7, "device": 0}},
        ]
    path = folder / "serving.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


@pytest.mark.parametrize("kept", ["look", "look.tar.zst"])
def test_a_live_look_and_its_replay_say_the_same(kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "kern.log"
    log.write_text("[Mon Nov  3 10:00:01 2025] NVRM: Xid (PCI:0000:3b:00): 31, pid=4127, Ch 00000010\n")
    bundle = tmp_path / kept
    with served(page(counting())) as url:
        live = diagnosed(
            *("--server", f"{url}/metrics", "--window", "0.3s", "--trace", str(_a_trace(tmp_path)), "--log", str(log)),
            *("--slo", "300ms", "--slo-errors", "1%", "--target", "intent", "--keep", str(bundle)),
        )
    monkeypatch.chdir(bundle.parent.parent)  # nothing of where it was collected may be needed again
    log.unlink()
    replayed = diagnosed(str(bundle))
    assert _of_the_evidence(live) == _of_the_evidence(replayed)
    read = {row["collector"] for row in live["coverage"] if row["status"] in ("read", "partly")}
    assert {"prometheus", "host", "torch_trace", "logs"} <= read, "every kind of source took part"
    fired = {check["id"] for check in live["checks"] if check["status"] == "fired"}
    assert {"p99-over-slo", "gpu-idle-between-kernels"} <= fired, "and every one was judged"


def test_a_source_that_failed_is_a_gap_of_the_replay_too(tmp_path: Path) -> None:
    bundle = tmp_path / "look"
    (tmp_path / "quiet.log").write_text("[    1.000000] eth0: link up\n")
    sources = ["--trace", str(tmp_path / "missing.json"), "--log", str(tmp_path / "quiet.log")]
    live = diagnosed(*sources, "--keep", str(bundle), code=4)
    assert any("missing.json" in gap["reason"] for gap in live["gaps"])
    assert _of_the_evidence(diagnosed(str(bundle))) == _of_the_evidence(live)


def test_a_baseline_travels_in_the_bundle(tmp_path: Path) -> None:
    from tests.cli.running import run

    healthy, bundle = tmp_path / "healthy.json", tmp_path / "look.tar.zst"
    assert run(["baseline", "record", str(BUNDLE), "--to", str(healthy)]).code == 0
    pages = sorted((BUNDLE / "artifacts" / "prometheus").iterdir())
    live = diagnosed(
        *(argument for path in pages for argument in ("--metrics", str(path))),
        *("--baseline", str(healthy), "--keep", str(bundle)),
    )
    assert _of_the_evidence(diagnosed(str(bundle))) == _of_the_evidence(live)
