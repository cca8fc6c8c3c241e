"""Files of profilers and builders on the command line: a bundle gives the same answer, bad files stop no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import diagnosed, run, write_trusted

ENGINES = "tensorrt/trex/examples/pytorch/resnet/A100"
SOURCES = {
    "nsys": ("--nsys", "nsys/nsys-ai/mock.sqlite"),
    "nsys folder": ("--nsys", "nsys/nsys-ai"),
    "tensorrt": ("--tensorrt", f"{ENGINES}/qat/resnet-qat.onnx.engine.graph.json"),
    "two engines": ("--tensorrt", f"{ENGINES}/qat", "--tensorrt", f"{ENGINES}/fp16"),
    "torch memory": ("--torch-memory", "torch_memory/medium_128_inference.memory_snapshot.pickle"),
}


def told(document: dict[str, Any]) -> dict[str, Any]:
    """The answer without what belongs to one run of the program."""
    return {key: document[key] for key in ("verdict", "answer", "causes", "checks", "coverage", "gaps")}


@pytest.mark.parametrize("ending", ["", ".tar.zst"])
@pytest.mark.parametrize("given", SOURCES.values(), ids=SOURCES)
def test_a_bundle_gives_the_same_answer(given: tuple[str, ...], ending: str, samples: Path, tmp_path: Path) -> None:
    options = [part if part.startswith("--") else str(samples / part) for part in given]
    kept = tmp_path / f"kept{ending}"
    assert run(["collect", *options, "--to", str(kept)]).code == 0
    assert told(diagnosed(str(kept))) == told(diagnosed(*options))


@pytest.mark.parametrize("option", ["--nsys", "--tensorrt", "--torch-memory"])
@pytest.mark.parametrize("content", [None, b"", b"\x00\x01\x02", b"{}", b"SQLite format 3\x00" + bytes(200)])
def test_what_cannot_be_read_is_an_error(option: str, content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "given.bin"
    if content is not None:
        path.write_bytes(content)
    outcome = run(["diagnose", option, str(path)])
    assert outcome.code == 1
    assert "given.bin" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_bad_file_stops_no_other(samples: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.sqlite"
    bad.write_bytes(b"SQLite format 3\x00" + bytes(200))
    document = diagnosed("--nsys", str(bad), "--nsys", str(samples / "nsys/nsys-ai/healthy_1pct.sqlite"))
    assert any("bad.sqlite" in gap["reason"] for gap in document["gaps"])
    row = next(one for one in document["coverage"] if one["collector"] == "nsight")
    assert row["status"] == "partly"


@pytest.mark.parametrize(
    ("name", "option"), [("report.sqlite", "--nsys"), ("table.csv", "--nsys"), ("snapshot.pickle", "--torch-memory")]
)
def test_a_file_in_the_place_of_a_bundle_names_its_option(name: str, option: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    outcome = run(["bundle", "inspect", str(tmp_path / name)])
    assert outcome.code == 2
    assert option in outcome.err


def test_files_of_a_target_are_configured(samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_trusted(
        f"targets:\n  a:\n    nsys: [{samples / 'nsys/nsys-ai/healthy_1pct.sqlite'}]\n"
        f"    torch_memory: [{samples / 'torch_memory/medium_128_inference.memory_snapshot.pickle'}]\n"
    )
    document = diagnosed("--target", "a")
    read = {row["collector"] for row in document["coverage"] if row["status"] in ("read", "partly")}
    assert {"nsight", "torch_memory"} <= read
