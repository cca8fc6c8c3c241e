"""`--since` and `--until` for logs: that time is judged, the same from a bundle, and never more than was seen."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tests.cli.running import checks, diagnosed, run

NIGHT = 1769828400.0  # 2026-01-31T03:00:00Z


def when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


ASKED = ["--since", when(NIGHT - 3600), "--until", when(NIGHT), "--slo", "500ms"]


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


def access_log(*spans: tuple[float, float, float]) -> str:
    """From … to … (seconds before the end) four requests a second that take so long."""
    rows = []
    for first, last, took in spans:
        for n in range(int(4 * (first - last))):
            at = datetime.datetime.fromtimestamp(NIGHT - first + n / 4, datetime.UTC)
            rows.append(f"{at.isoformat(timespec='milliseconds')} 200 {took}")
    Path("access.log").write_text("\n".join(rows) + "\n")
    return "access.log"


def kernel_log(*spoken: tuple[float, str]) -> str:
    rows = [f"{when(NIGHT - seconds)} node kernel: {text}" for seconds, text in spoken]
    Path("kern.log").write_text("\n".join(rows) + "\n")
    return "kern.log"


PATTERN = ["--log-pattern", "{time} {status} {seconds}"]


def test_slow_now_is_not_slow_then() -> None:
    log = access_log((3600, 0, 0.1), (0, -1800, 2.0))
    then = diagnosed("--log", log, *PATTERN, *ASKED)
    assert "p99-over-slo" in checks(then, "clear")
    now = diagnosed("--log", log, *PATTERN, "--slo", "500ms", code=3)
    assert "p99-over-slo" in checks(now, "fired")


@pytest.mark.parametrize(
    ("failing", "given", "code", "message"),
    [
        (0.04, [], 4, "INCONCLUSIVE"),
        (0.3, [], 3, "30 % of requests fail"),
        (1.0, [], 3, "100 % of requests fail"),
        (0.3, ["--slo-errors", "40%"], 0, "WARNING"),
        (0.04, ["--slo-errors", "1%"], 3, "errors 4 %"),
    ],
)
def test_requests_that_fail_are_told_without_being_asked(
    failing: float, given: list[str], code: int, message: str
) -> None:
    rows = [f"{when(NIGHT - 600 + n)} {503 if n % 100 < 100 * failing else 200} 0.1" for n in range(600)]
    Path("access.log").write_text("\n".join(rows) + "\n")
    outcome = run(["diagnose", "--log", "access.log", *PATTERN, "--slo", "500ms", *given])
    assert outcome.code == code, outcome.out
    assert message in outcome.out


def test_to_watch_is_nothing_that_a_log_can_be_told() -> None:
    outcome = run(["diagnose", "--log", access_log((60, 0, 0.1)), *PATTERN, "--window", "1m"])
    assert outcome.code == 2
    assert "needs a live source" in outcome.err


def test_a_bundle_gives_the_same_answer_and_knows_since_when() -> None:
    log = access_log((3600, 540, 0.1), (540, -1800, 2.0))
    live = diagnosed("--log", log, *PATTERN, *ASKED, "--keep", "look.tar.zst", code=3)
    assert abs(live["since"]["time"] - (NIGHT - 540)) <= 60
    replayed = diagnosed("look.tar.zst", code=3)
    assert {key for key in live if live[key] != replayed[key]} <= {"run_id", "generated_at"}


def test_an_xid_of_another_day_is_no_finding_and_a_log_that_ends_too_early_clears_none() -> None:
    xid = "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."
    log = access_log((3600, 0, 0.1))
    old = kernel_log((90_000, xid), (90_000, "usb 1-1: new device"), (60, "usb 1-1: gone"))
    then = diagnosed("--log", log, *PATTERN, "--log", old, *ASKED)
    assert not [one for one in checks(then, "fired") if "xid" in one or "gpu-lost" in one]
    assert [one for one in checks(then, "clear") if "xid" in one]
    early = kernel_log((5000, "usb 1-1: new device"), (1200, "usb 1-1: gone"))
    then = diagnosed("--log", log, *PATTERN, "--log", early, *ASKED)
    unseen = {name: one["reason"] for name, one in checks(then, "not-evaluated").items() if name.startswith("gpu-xid")}
    assert unseen
    assert all("the log ends at 2026-01-31 02:40:00 UTC" in reason for reason in unseen.values())
    assert then["verdict"]["level"] != "healthy"


def test_an_access_log_that_ends_too_early_leaves_the_answer_open() -> None:
    given = ["--log", access_log((3600, 600, 0.1)), *PATTERN, *ASKED]
    live = diagnosed(*given, code=4)
    assert live["verdict"]["level"] == "inconclusive"
    check = checks(live, "not-evaluated")["p99-over-slo"]
    assert "the log ends at 2026-01-31 02:4" in check["reason"]
    outcome = run(["collect", *given, "--to", "look"])
    assert outcome.code == 0, outcome.err
    assert checks(diagnosed("look", code=4), "not-evaluated")["p99-over-slo"] == check
    assert run(["baseline", "record", *given[:-2], "--to", "b.json"]).code == 1, "there is nothing to remember"


def test_the_answer_says_that_nothing_lies_in_the_requested_time() -> None:
    name = access_log((60, 0, 0.05))
    shown = run(["diagnose", "--log", name, *PATTERN, "--since", when(NIGHT + 7200), "--until", when(NIGHT + 9000)])
    said = " ".join(shown.out.split())
    assert said.startswith("INCONCLUSIVE nothing read lies in the judged time: the log ends at 2026-01-31")
