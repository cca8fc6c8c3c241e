"""The stub library, compiled once per run, and one look at it through the unmodified nvidia-ml-py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from latdoctor.collectors.base import SourceAvailability
from latdoctor.collectors.nvml import collector as nvml
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Reading

_HERE = Path(__file__).parent / "stub"

State = Mapping[str, object]


@dataclass(frozen=True)
class Seen:
    """What one look brought back, parsed."""

    evidence: Evidence
    artifacts: tuple[Artifact, ...]
    collected_gaps: tuple[Gap, ...]
    sights: tuple[SourceAvailability, ...]

    def reading(self, signal: str, subject: str = "gpu/0") -> Reading | None:
        found = [r for r in self.evidence.readings if (r.signal, r.subject) == (signal, subject)]
        assert len(found) <= 1, f"{signal} was read twice"
        return found[0] if found else None

    def value(self, signal: str, subject: str = "gpu/0") -> float | str | None:
        found = self.reading(signal, subject)
        return None if found is None else found.value

    def gap(self, signal: str, subject: str = "gpu/0") -> str:
        """Why a signal is hidden; empty where it is not."""
        return "; ".join(g.reason for g in self.evidence.gaps if signal in g.signals and g.subject == subject)


class _Answer(msgspec.Struct):
    artifacts: list[str]
    gaps: list[Gap]
    sights: list[SourceAvailability]


Look = Callable[..., Seen]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Folders to load libnvidia-ml.so.1 from: of a new driver, of an old one, and one that cannot be loaded."""
    compiler = shutil.which("cc")
    if compiler is None:
        reason = "no C compiler (cc) to build the NVML stub with"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    folders = {name: tmp_path_factory.mktemp(name) for name in ("new", "old", "none")}
    for name, flags in {"new": [], "old": ["-DOLD_DRIVER"]}.items():
        target = folders[name] / "libnvidia-ml.so.1"
        command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags]
        subprocess.run([*command, "-Wl,-soname,libnvidia-ml.so.1", "-o", target, _HERE / "nvml.c"], check=True)
    # An empty file in front of a library that this machine may have: loading fails as if there were none.
    (folders["none"] / "libnvidia-ml.so.1").touch()
    return folders


@pytest.fixture
def look(libraries: Mapping[str, Path], tmp_path: Path) -> Look:
    def run(states: Sequence[State], *, window: float = 1.0, pid: str = "none", library: str = "new") -> Seen:
        states_file = tmp_path / "states.json"
        states_file.write_text(json.dumps(list(states)))
        environment = os.environ | {
            "LD_LIBRARY_PATH": str(libraries[library]),
            "NVML_STUB": str(tmp_path / "stub.txt"),
        }
        done = subprocess.run(
            [sys.executable, _HERE / "watch.py", states_file, str(window), pid],
            env=environment,
            check=True,
            stdout=subprocess.PIPE,
            timeout=60,
        )
        answer = msgspec.json.decode(done.stdout, type=_Answer)
        artifacts = tuple(
            Artifact("nvml.json", "nvml", "nvml", "test", 0.0, text.encode()) for text in answer.artifacts
        )
        parsed = Evidence.merge([nvml.READER.parse(artifacts)]) if artifacts else Evidence()
        return Seen(parsed, artifacts, tuple(answer.gaps), tuple(answer.sights))

    return run
