"""Text from outside reaches no terminal, no document and no channel as anything but plain words."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli.running import run

BUNDLE = Path(__file__).parents[2] / "fixtures" / "incidents" / "gpu-thermal"
EVIL = (
    "\x1b[31mRED\x1b[0m\x1b]0;title\x07\x9b5m\u202eevil\u2066\u200b<script>alert(1)</script> [link](http://x.example)"
    " **bold** `code` | cell [red]markup[/red] @here www.x.example \r\x08"
)
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _sources() -> list[str]:
    Path("evil.log").write_text(
        f"[Mon Nov  3 10:00:01 2025] NVRM: Xid (PCI:0000:3b:00): 31, pid=4127, name={EVIL}\n"
        f"2025-11-03 10:00:05 ERROR RuntimeError: CUDA error: out of memory {EVIL}\n",
        newline="",
    )
    Path("evil.prom").write_text(
        "".join(
            f'nv_{name}{{model="{EVIL}",version="1"}} {value}\n'.replace("\r", "").replace("\n", " ").strip() + "\n"
            for name, value in (("inference_count", 5), ("inference_exec_count", 5), ("inference_request_success", 5))
        )
        + f'nv_inference_pending_request_count{{model="{EVIL}",version="1"}} 900\n'.replace("\r", "")
    )
    return ["--log", "evil.log", "--metrics", "evil.prom", "--target", f"checkout {EVIL}"]


def _bundle() -> list[str]:
    """A bundle from somebody else, whose manifest says what it likes."""
    shutil.copytree(BUNDLE, "look")
    manifest = json.loads(Path("look/manifest.json").read_text())
    manifest["context"]["target"] = EVIL
    manifest["gaps"] = [
        {"source": EVIL, "reason": EVIL, "signals": [EVIL], "subject": EVIL, "next_step": EVIL, "origin": None}
    ]
    for artifact in manifest["artifacts"]:
        artifact["source"] = EVIL
        artifact["group"] += EVIL
    Path("look/manifest.json").write_text(json.dumps(manifest))
    return ["look"]


SOURCES = pytest.mark.parametrize("sources", [_sources, _bundle], ids=["live", "bundle"])


@SOURCES
@pytest.mark.parametrize("output", ["text", "markdown", "json"])
def test_nothing_of_it_can_act(sources: object, output: str) -> None:
    assert callable(sources)
    outcome = run(["diagnose", *sources(), "-v", "-o", output])
    assert outcome.code in (0, 3, 4), outcome.err
    assert "evil" in outcome.out, "the words themselves are shown"
    assert not _CONTROL.findall(outcome.out)
    assert not _CONTROL.findall(outcome.err)
    if output == "json":
        assert not re.findall(r"\\u00[01][0-9a-f]|\\u0080|\\u009b|\\u20[26]", outcome.out)
    if output == "markdown":
        for active in (r"(?<!\\)<script", r"(?<!\\)\[link", r"(?<!\\)\*\*bold", r"(?<!\\)`code", r"(?<!\\)@here"):
            assert not re.search(active, outcome.out), active
        assert "http://x" not in outcome.out, "it would become a link"
        assert "www.x" not in outcome.out
        assert not re.search(r"(?<!\\)\| cell", outcome.out), "it would become a cell of the table"


def test_bundle_inspect_shows_words_only() -> None:
    outcome = run(["bundle", "inspect", *_bundle()])
    assert outcome.code == 0
    assert "evil" in outcome.out
    assert not _CONTROL.findall(outcome.out)


def test_markup_is_printed_as_it_stands() -> None:
    """rich's own markup in a log neither colours the answer nor vanishes from it."""
    assert "[red]markup[/red]" in run(["diagnose", *_sources(), "-v"]).out.replace("\n", " ")


def test_a_hostile_file_name_is_cleaned() -> None:
    outcome = run(["diagnose", "--log", "a\x1b[31m\u202e.log", "--trace", "b\x9b1m.json"])
    assert outcome.code == 1, "neither is there"
    assert "a.log" in outcome.err
    assert not _CONTROL.findall(outcome.err)
    Path("quiet.log").write_text("[    1.000000] eth0: link up\n")
    outcome = run(["diagnose", "--log", "a\x1b[31m\u202e.log", "--log", "quiet.log", "-v"])
    assert outcome.code == 4
    assert "a.log" in outcome.out
    assert not _CONTROL.findall(outcome.out)


def test_an_error_message_is_cleaned() -> None:
    outcome = run(["diagnose", "a\x1b[31m\u202e.tar.zst"])
    assert outcome.code == 2
    assert not _CONTROL.findall(outcome.err)
