"""What is kept is redacted unless somebody says otherwise, and answers alike."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import run

START = 1769827740


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """An access log of a minute and a half that becomes slow, with users and addresses in it."""
    path = tmp_path / "access.log"
    rows = []
    for n in range(900):
        took = 0.05 + 0.0001 * (n % 50) + (0.5 if n > 600 else 0.0)
        record = {
            "time": START + n / 10,
            "status": 200,
            "path": "/v1/predict",
            "request_time": took,
            "client": f"10.2.3.{n % 7}",
            "user": f"jane-{n % 5}",
            "prompt": "what is my balance",
        }
        rows.append(json.dumps(record))
    path.write_text("\n".join(rows))
    return path


def texts(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


def test_collect_redacts_and_says_so(log: Path, tmp_path: Path) -> None:
    assert run(["collect", "--log", str(log), "--to", str(tmp_path / "kept")]).code == 0
    kept = texts(tmp_path / "kept")
    assert [word for word in ("jane", "10.2.3.", "balance") if word in kept] == []
    shown = run(["bundle", "inspect", str(tmp_path / "kept")]).out
    assert "redacted: 900 addresses, 900 prompts, 900 user ids" in shown


def test_no_redact_keeps_everything_and_says_so(log: Path, tmp_path: Path) -> None:
    assert run(["collect", "--log", str(log), "--to", str(tmp_path / "kept"), "--no-redact"]).code == 0
    assert log.read_text() in texts(tmp_path / "kept")
    assert "not redacted" in run(["bundle", "inspect", str(tmp_path / "kept")]).out


def test_what_is_diagnosed_now_is_what_a_replay_diagnoses(log: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.tar.zst"
    now = json.loads(run(["diagnose", "--log", str(log), "--slo", "200ms", "--keep", str(kept), "-o", "json"]).out)
    later = json.loads(run(["diagnose", str(kept), "-o", "json"]).out)
    plain = json.loads(run(["diagnose", "--log", str(log), "--slo", "200ms", "-o", "json"]).out)
    for one in (now, later, plain):
        for name in ("run_id", "generated_at", "window"):
            del one[name]
    assert now == later == plain
    assert now["since"]["time"] == pytest.approx(START + 60, abs=2)


def test_redact_makes_a_copy_without_them(log: Path, tmp_path: Path) -> None:
    run(["collect", "--log", str(log), "--to", str(tmp_path / "raw"), "--no-redact"])
    outcome = run(["bundle", "redact", str(tmp_path / "raw"), "--to", str(tmp_path / "clean")])
    assert outcome.code == 0
    assert "redacted: 900 addresses" in outcome.out
    assert "jane" not in texts(tmp_path / "clean")
    assert run(["bundle", "redact", str(tmp_path / "raw"), "--to", str(tmp_path / "clean")]).code == 2


def test_diff_lists_the_largest_change_first(log: Path, tmp_path: Path) -> None:
    early = tmp_path / "early.log"
    early.write_text("\n".join(log.read_text().splitlines()[:600]))
    for name, path in (("before", early), ("after", log)):
        run(["collect", "--log", str(path), "--to", str(tmp_path / name)])
    outcome = run(["bundle", "diff", str(tmp_path / "before"), str(tmp_path / "after"), "-v"])
    assert outcome.code == 0
    headline, _, first, *_ = outcome.out.splitlines()
    assert headline.startswith("SLOWER  P99 ")
    assert "latency." in first
    assert "within 20 % of each other" in outcome.out
    alike = run(["bundle", "diff", str(tmp_path / "after"), str(tmp_path / "after")]).out
    assert ", 0 beyond" in alike


def test_compare_with_a_baseline(log: Path, tmp_path: Path) -> None:
    early, remembered = tmp_path / "early.log", tmp_path / "healthy.json"
    early.write_text("\n".join(log.read_text().splitlines()[:600]))
    assert run(["baseline", "record", "--log", str(early), "--to", str(remembered)]).code == 0
    outcome = run(["baseline", "compare", str(remembered), "--log", str(log)])
    assert outcome.code == 0
    assert outcome.out.startswith("SLOWER  P99 54.9 ms → 555 ms (+911 %)")
    assert "latency.p99" in run(["baseline", "compare", str(remembered), "--log", str(log), "-v"]).out
    assert run(["baseline", "compare", str(remembered), "--log", str(tmp_path / "none.log")]).code == 1
    assert run(["baseline", "compare", str(tmp_path / "none.json"), "--log", str(log)]).code == 2
    answer = json.loads(run(["diagnose", "--log", str(log), "--baseline", str(remembered), "-o", "json"]).out)
    check = next(one for one in answer["checks"] if one["id"] == "p99-over-baseline")
    assert check["status"] == "fired"


def test_a_log_pattern_on_the_command_line(tmp_path: Path) -> None:
    log = tmp_path / "own.log"
    log.write_text("\n".join(f"{START + n} {200} {5 + n % 3}" for n in range(200)))
    asked = ["diagnose", "--log", str(log), "--slo", "1s", "-o", "json"]
    answer = json.loads(run([*asked, "--log-pattern", "{time} {status} {ms}"]).out)
    check = next(one for one in answer["checks"] if one["id"] == "p99-over-slo")
    assert check["status"] == "clear"
    assert not [gap for gap in answer["gaps"] if "--log-pattern" in gap["reason"]]
    assert run([*asked, "--log-pattern", "{nothing}"]).code == 2


def test_a_pattern_that_fits_no_line_is_told(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "own.log"
    other.write_text("\n".join(f"{START + n} {200} {5 + n % 3}" for n in range(200)))
    for given, hides in ((other, True), (log, False)):
        answer = json.loads(run(["diagnose", "--log", str(given), "--log-pattern", "[{time}] {ms}", "-o", "json"]).out)
        (gap,) = (
            gap for gap in answer["gaps"] if "--log-pattern '[{time}] {ms}' matches none of the lines" in gap["reason"]
        )
        assert gap["next_step"]
        assert ("latency" in gap["signals"]) is hides
    kept = tmp_path / "kept"
    assert run(["collect", "--log", str(other), "--log-pattern", "[{time}] {ms}", "--to", str(kept)]).code == 0
    assert "matches none of the" in run(["diagnose", str(kept), "-vv"]).out


def test_since_and_what_changed_stand_in_the_first_lines(log: Path, tmp_path: Path) -> None:
    notes = tmp_path / "changes.log"
    notes.write_text("2026-01-31T02:49:30Z deployed checkout v7\n")
    asked = ["diagnose", "--log", str(log), "--changes", str(notes), "--slo", "200ms"]
    first = " ".join(run([*asked, "-v"]).out.split())[:400]
    assert re.search(
        r"slow since 2026-01-31 02:(?:49:59|50:0\d) UTC[^:]*: P\d\d [\d.]+ ms before, \d{3} ms then", first
    )
    assert "Changed before: 02:49:30 deployed checkout v7 (service)" in first
    assert ", since 2026-01-31 02:" in " ".join(run([*asked, "-o", "markdown"]).out.split())
    assert run(["diagnose", "--changes", str(tmp_path / "none")]).code == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "unknown, as the source of changes could not be read (n.log: does not exist)"),
        ("no time here\n", "unknown, as the source of changes could not be read (n.log: contains no change with a"),
        ("2026-01-01T00:00:00Z v6\nx\n", "no change seen, but not all was read (n.log: 1 of its lines could"),
        ("2026-01-01T00:00:00Z v6\n", "no change seen in what was read"),
    ],
)  # fmt: skip
def test_no_change_is_not_claimed_of_what_could_not_be_read(
    content: str | None, told: str, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("n.log").write_text(content)
    outcome = run(["diagnose", "--log", log.name, "--changes", "n.log", "--slo", "200ms", "-v"])
    assert f"Changed before: {told}" in " ".join(outcome.out.split())
