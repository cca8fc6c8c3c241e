"""`diagnose --watch`: on a terminal, in a pipe, as JSON; and that Ctrl-C is an end like any other."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from latdoctor.cli import diagnose_watch
from latdoctor.cli.interrupt import StoppedError
from latdoctor.diagnosis.result import Diagnosis
from latdoctor.diagnosis.rule_schema import RuleSet
from latdoctor.errors import OperationError
from tests.cli import pages
from tests.cli.running import run
from tests.diagnosis.small_rules import small_rules, told

PATIENCE = 60.0  # seconds: only a hang is a failure
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
PAGES = ["--metrics", "first.prom", "--metrics", "last.prom"]


class Clock:
    """Moves on when somebody sleeps."""

    def __init__(self) -> None:
        self.at = 1_790_000_000.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at += seconds


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    return small_rules(tmp_path / "rules")


def followed(shown: diagnose_watch.Screen, looks: list[Diagnosis | BaseException], clock: Clock | None = None) -> int:
    """The exit code of watching `looks`, after which Ctrl-C comes; a look that is an error is raised."""
    coming: Iterator[Diagnosis | BaseException] = iter([*looks, KeyboardInterrupt()])

    def diagnosis() -> Diagnosis:
        found = next(coming)
        if isinstance(found, BaseException):
            raise found
        return found

    codes = {"critical": 3, "inconclusive": 4}
    return diagnose_watch.follow(diagnosis, shown, clock or Clock(), 10, lambda one: codes.get(one.verdict.level, 0))


def test_a_line_for_each_change_and_none_for_what_stays(rules: RuleSet, capsys: pytest.CaptureFixture[str]) -> None:
    well, sick, other = told(rules), told(rules, hot=True, power=True, slow=True), told(rules, slow=True)
    lost = OperationError("nothing could be read\x1b[2J")
    assert followed(diagnose_watch.Lines(), [well, well, sick, sick, lost, lost, sick, other, well]) == 0
    said = [row.partition("UTC  ")[2] for row in capsys.readouterr().out.splitlines()]
    assert [row.partition(" (")[0] for row in said] == [
        "healthy: no cause found",
        "critical: infra.heat",
        "no diagnosis: nothing could be read",
        "critical: infra.heat",
        said[4].partition(" (")[0],
        "healthy: no cause found",
    ]
    assert said[4].startswith("critical: ")


@pytest.mark.parametrize(
    ("states", "code"), [({}, 0), ({"slow": True}, 3), ({"slow": None}, 4)], ids=["healthy", "critical", "unknown"]
)
def test_it_leaves_with_the_code_of_the_last_verdict(rules: RuleSet, states: dict[str, bool | None], code: int) -> None:
    assert followed(diagnose_watch.Documents(), [told(rules, slow=True), told(rules, **states)]) == code


def test_a_last_look_that_failed_is_no_verdict(rules: RuleSet, capsys: pytest.CaptureFixture[str]) -> None:
    assert followed(diagnose_watch.Documents(), [told(rules), OperationError("the server is gone")]) == 1
    verdict, failure = map(json.loads, capsys.readouterr().out.splitlines())
    assert verdict["verdict"]["level"] == "healthy"
    assert failure["could_not_look"] == "the server is gone", "or who reads on would believe the last line"


def test_a_first_look_that_fails_is_an_error_at_once() -> None:
    with pytest.raises(OperationError, match="no such server"):
        followed(diagnose_watch.Lines(), [OperationError("no such server")])


def test_interrupted_before_the_first_look_there_is_no_verdict() -> None:
    with pytest.raises(StoppedError, match="before the first diagnosis"):
        followed(diagnose_watch.Lines(), [])


def test_looks_begin_at_even_distances(rules: RuleSet) -> None:
    clock = Clock()

    class Slow(diagnose_watch.Documents):
        def show(self, diagnosis: Diagnosis, at: float) -> None:
            clock.at += 4 if len(clock.slept) == 0 else 30

    followed(Slow(), [told(rules), told(rules)], clock)
    assert clock.slept == [6, 0], "what a look took is part of the time; it is never waited less than not at all"


def test_a_reader_who_has_gone_ends_it(rules: RuleSet, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        gone = False

    stream = Gone()

    class Shown(diagnose_watch.Documents):
        def show(self, diagnosis: Diagnosis, at: float) -> None:
            stream.gone = True

    monkeypatch.setattr(diagnose_watch.sys, "stdout", stream)
    assert diagnose_watch.follow(lambda: told(rules, slow=True), Shown(), Clock(), 10, lambda one: 3) == 3


@pytest.fixture
def pages_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    Path("first.prom").write_bytes(pages.triton(81_000, seconds_each=0.2))
    Path("last.prom").write_bytes(pages.triton(85_000, seconds_each=0.2))


REFUSED = [
    (["bundle.tar.zst"], "a bundle is for a single diagnosis"),
    (["--keep", "x", *PAGES], "--keep is for a single diagnosis"),
    (["--against", "x", *PAGES], "--against is for a single diagnosis"),
    (["--between", "a", "b", *PAGES], "--between is for a single diagnosis"),
    (["-o", "markdown", *PAGES], "-o markdown is for a single diagnosis"),
    (["-v", *PAGES], "-v is for a single diagnosis"),
    (["--every", "0s", *PAGES], "must be between 1s and 24h"),
    (["--every", "soon", *PAGES], "'soon' is not a quantity"),
    (["--metrics", "-"], "- can be read only once"),
    (["--prometheus", "http://127.0.0.1:9", "--until", "02:30"], "--until ends the diagnosed period"),
]


@pytest.mark.usefixtures("pages_here")
@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_watched_is_refused(arguments: list[str], message: str) -> None:
    outcome = run(["diagnose", "--watch", *arguments])
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


@pytest.mark.usefixtures("pages_here")
def test_every_without_watch_is_refused() -> None:
    assert "--every is for --watch" in run(["diagnose", "--every", "5s", *PAGES]).err


def _started(arguments: list[str], stdout: int, **more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "latdoctor", "diagnose", "--watch", "--every", "1s", *arguments]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "40", **more}
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment)


@pytest.mark.usefixtures("pages_here")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_in_a_pipe_ends_cleanly(number: int) -> None:
    process = _started([*PAGES, "--slo", "100ms", "-o", "json"], subprocess.PIPE)
    assert process.stdout is not None
    looks = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert {look["verdict"]["level"] for look in looks} == {looks[0]["verdict"]["level"]}
    assert looks[0]["run_id"] != looks[1]["run_id"]
    assert process.returncode == {"critical": 3, "inconclusive": 4}.get(looks[0]["verdict"]["level"], 0)
    assert b"Traceback" not in err


@pytest.mark.usefixtures("pages_here")
@pytest.mark.parametrize("colour", [True, False], ids=["colour", "NO_COLOR"])
def test_a_terminal_is_redrawn_in_place(colour: bool) -> None:
    ours, theirs = pty.openpty()
    process = _started(PAGES, theirs, **({} if colour else {"NO_COLOR": "1"}))
    os.close(theirs)
    shown = _until(ours, b"diagnosis 3 at ")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert process.returncode == 4, err
    assert b"Traceback" not in err
    assert "\x1b[1A" in shown, "the cursor goes up and the next look stands where the last one stood"
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", shown)) is colour
    rows = [_CODES.sub("", row) for row in re.split(r"[\r\n]+", shown)]
    assert max(map(len, rows)) <= 80


def _until(descriptor: int, wanted: bytes) -> str:
    """What the terminal shows up to and with `wanted`."""
    seen, end = b"", time.monotonic() + PATIENCE
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        assert ready, seen
        seen += os.read(descriptor, 65536)
    return seen.decode()
