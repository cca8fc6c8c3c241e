"""The README shows what latdoctor says of a recorded run of `make demo`. `LATDOCTOR_GOLDEN=write` writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.running import run

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "fixtures" / "incidents" / "promo-rush.tar.zst"
_ASKED = re.compile(r"`latdoctor diagnose (fixtures/\S+)`")
_BLOCK = re.compile(r"(?<=<!-- demo -->\n```text\n).*?(?=```\n<!-- /demo -->)", re.DOTALL)


def test_the_readme_shows_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    asked = _ASKED.search((ROOT / "README.md").read_text())
    assert asked, "the README does not say which bundle it shows"
    printed = "\n".join(line.rstrip() for line in run(["diagnose", asked[1]]).out.splitlines()) + "\n"
    readme = (ROOT / "README.md").read_text()
    if os.environ.get("LATDOCTOR_GOLDEN") == "write":
        (ROOT / "README.md").write_text(_BLOCK.sub(lambda _: printed, readme))
    shown = _BLOCK.search(readme)
    assert shown is not None
    assert shown[0] == printed


def test_the_recorded_demo_names_both_causes_of_the_rush() -> None:
    import msgspec

    answer = msgspec.json.decode(run(["diagnose", str(RECORDED), "--output", "json"]).out)
    named = {cause["id"] for cause in answer["causes"] if cause["named"]}
    assert named == {"app.batching.long-alone", "framework.alloc.storm"}


def test_the_made_incident_is_what_its_generator_makes(tmp_path: Path) -> None:
    import runpy

    made = runpy.run_path(str(ROOT / "fixtures" / "generate.py"))
    from latdoctor.evidence.bundle_files import save

    save(made["gpu_thermal"](), tmp_path / "gpu-thermal", "fixtures")
    kept = ROOT / "fixtures" / "incidents" / "gpu-thermal"
    files = sorted(path.relative_to(kept) for path in kept.rglob("*") if path.is_file())
    assert files == sorted(p.relative_to(tmp_path / "gpu-thermal") for p in tmp_path.rglob("*") if p.is_file())
    for name in files:
        assert (kept / name).read_bytes() == (tmp_path / "gpu-thermal" / name).read_bytes(), name
