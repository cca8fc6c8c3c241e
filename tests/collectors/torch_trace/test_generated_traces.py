"""The generator of the benchmark: seeded, and each kind of trace shows what it was made to show."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from latdoctor.collectors.torch_trace import COLLECTOR
from tests.collectors.torch_trace.synthetic_traces import artifact, values

GENERATOR = Path(__file__).parents[3] / "bench" / "generate_trace.py"


def generate(path: Path, *options: str) -> Mapping[str, float]:
    subprocess.run([sys.executable, str(GENERATOR), str(path), "--events", "9000", *options], check=True)
    return values(COLLECTOR.parse((artifact(path),)))


SHAPES: dict[str, tuple[list[str], Callable[[Mapping[str, float]], bool]]] = {
    "healthy": ([], lambda seen: seen["gpu.busy_ratio"] > 0.9 and seen["alloc.device_rate"] == 0),
    "storm": (["--storm"], lambda seen: seen["alloc.device_rate"] > 1000 and seen["start.cold_time"] == 0),
    "storm-no-steps": (["--storm", "--no-steps"], lambda seen: seen["alloc.device_rate"] > 1000),
    "launch-bound": (["--launch-bound"], lambda seen: seen["gpu.busy_ratio"] < 0.3 and seen["kernel.tiny_ratio"] > 0.9),
    "sync-stalls": (["--sync-stalls"], lambda seen: seen["sync.drain_share"] > 0.1 and seen["sync.idle_share"] > 0.1),
    "cold": (["--cold"], lambda seen: seen["start.cold_share"] > 0.9 and seen["alloc.warmup_calls"] == 20),
}


@pytest.mark.parametrize(("options", "shows"), SHAPES.values(), ids=SHAPES)
def test_each_kind_shows_what_it_was_made_to_show(
    options: list[str], shows: Callable[[Mapping[str, float]], bool], tmp_path: Path
) -> None:
    seen = generate(tmp_path / "trace.json", *options)
    assert shows(seen), dict(seen)


def test_a_seed_gives_the_same_trace(tmp_path: Path) -> None:
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        generate(tmp_path / f"{name}.json.gz", "--seed", seed)
    first, again, other = (values(COLLECTOR.parse((artifact(tmp_path / f"{n}.json.gz"),))) for n in "abc")
    assert first == again
    assert first != other
