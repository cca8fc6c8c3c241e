"""Every answer to a sample file or a recorded incident fits one screen and is free of internal names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from latdoctor.diagnosis.rule_loader import shipped
from latdoctor.evidence.catalogue import catalogue
from tests.cli.running import run

ROOT = Path(__file__).parents[2]
INCIDENTS = sorted((ROOT / "fixtures" / "incidents").iterdir())
# Which samples each option of `diagnose` reads, relative to the folder of samples.
SAMPLES = {
    "--trace": ("kineto/hta/*.gz", "kineto/tracelens/*.gz"),
    "--nsys": ("nsys/nsys-ai/*.sqlite",),
    "--metrics": ("metrics/**/*.prom", "nvml/**/*.metrics"),
    "--log": ("logs/**/*.log",),
    "--torch-memory": ("torch_memory/*.pickle",),
    "--tensorrt": ("tensorrt/**/fp16", "tensorrt/**/fp32", "tensorrt/**/qat"),
}
HEIGHT, WIDTH = 24, 80
# Ordinary words that are signals too.
_WORDS = {"queue", "latency"}


def internal_names(text: str) -> set[str]:
    """The ids of checks and signals in `text`; `latdoctor explain CAUSE` in its last line is no check."""
    words = set(re.findall(r"[a-z][a-z0-9_]*(?:[.-][a-z0-9_]+)+", text))
    return words & ({*shipped().finding, *catalogue()} - _WORDS)


def check(out: str) -> None:
    lines = out.splitlines()
    assert 1 <= len(lines) <= HEIGHT
    assert max(map(cell_len, lines)) <= WIDTH
    assert internal_names(out) == set()


@pytest.mark.parametrize("path", INCIDENTS, ids=lambda path: path.name)
def test_the_answer_to_a_recorded_incident_fits_one_screen(path: Path) -> None:
    check(run(["diagnose", str(path)]).out)


@pytest.mark.parametrize("option", SAMPLES)
def test_the_answer_to_each_sample_file_fits_one_screen(option: str, samples: Path) -> None:
    files = [path for pattern in SAMPLES[option] for path in sorted(samples.glob(pattern))]
    assert files, f"no sample for {option}"
    for path in files:
        check(run(["diagnose", option, str(path)]).out)


def test_an_internal_name_is_recognised() -> None:
    assert internal_names("p99-over-slo at latency.p99 of the queue") == {"p99-over-slo", "latency.p99"}
