"""Kills a run, a rollback or a recovery at each of its calls, recovers it, and says how the target then stands.

What has to hold after each kill and the recovery that follows it: the target is before or after and never between, and
after only where the run has verified itself; the journal verifies; no run is open; another recovery does nothing.
"""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.remediation import run_history
from latdoctor.remediation.run_result import Outcome
from tests.crash.forks import Asked
from tests.crash.sweep import CHANGES
from tests.crash.target import AFTER, BEFORE, Target

PLAYBOOKS = Path(__file__).parent / "playbooks"
KILLED = -9
RECOVER = "recover"
# What is swept: a run that verifies, one whose proof is pending first, one that does not and takes itself back, and a
# verified one taken back when asked.
RUNS = ("apply", "prove", "fail", "rollback")
# Recovery is swept from where a run was killed just before the nth unlink, which ends a transaction, of the end where
# negative. The target has then: the first change, whose making is not journaled; both, the second not; the first, with
# the second taken back.
NESTED: tuple[tuple[str, str, int], ...] = (("apply", "unlink", 6), ("apply", "unlink", 8), ("fail", "unlink", -3))


# A disk that fails or is full, a target that is not there or goes away.
ERRORS = dict.fromkeys(CHANGES, errno.ENOSPC) | {
    "fsync": errno.EIO,
    "fdatasync": errno.EIO,
    "unlink": errno.EIO,
    "connect": errno.ECONNREFUSED,
    "sendto": errno.ECONNRESET,
    "sendmsg": errno.ECONNRESET,
}


@dataclass(frozen=True, slots=True)
class Left:
    """What a kill left, after recovery. `flaws` are what must not be."""

    phase: str
    point: int
    call: str
    code: int  # with which it ended
    outcome: str  # of the run, "" where none was journaled
    stands: str  # before | after | between
    flaws: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a phase begins: a state folder to copy, and what is configured."""

    phase: str
    mode: str
    state: Path
    config: dict[str, Any]
    calls: tuple[str, ...]  # that an undisturbed one makes, in their order
    revision: int = 0  # of the configuration, as the journal in `state` knows it; 0: a new one


class Sweep:
    """As a context, in a folder of its own."""

    def __init__(self, folder: Path, *, mutant: bool = False) -> None:
        self._folder = folder
        self._mutant = ("mutant",) if mutant else ()
        self._state = folder / "state"

    def __enter__(self) -> Self:
        self.target = Target().__enter__()
        self._forks = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._forks.stdin
        assert self._forks.stdout
        self._forks.stdin.close()
        self._forks.wait(20)
        self._forks.stdout.close()
        self.target.__exit__(kind, error, trace)

    def phases(self) -> Iterator[Begin]:
        """Every phase, ready to be swept."""
        empty = self._folder / "empty"
        empty.mkdir()
        calls = {}
        for mode in ("apply", "prove", "fail"):
            self._from(empty, BEFORE)
            calls[mode] = self._done(mode)
            kept, revision = self._kept(mode), self.target.seen().revision
            yield Begin(mode, mode, empty, BEFORE, calls[mode])
            if mode == "apply":
                self._from(kept, AFTER, revision)
                yield Begin("rollback", "rollback", kept, AFTER, self._done("rollback"), revision)
        for mode, name, nth in NESTED:
            at = nth_of(calls[mode], name, nth)
            self._from(empty, BEFORE)
            self._ended(mode, at)
            kept, seen = self._kept(f"{mode}-{at}"), self.target.seen()
            phase, calls_made = f"recover, after {mode} was killed at {at}", self._done(RECOVER)
            yield Begin(phase, RECOVER, kept, seen.config, calls_made, seen.revision)

    def killed(self, begin: Begin, point: int) -> Left:
        """Kills at `point`, counted from 1, recovers, and looks."""
        self._from(begin.state, begin.config, begin.revision)
        code, met = self._ended(begin.mode, point)
        flaws = [] if code == KILLED and len(met) == point else [f"it was not killed: {code} after {len(met)} calls"]
        return self._recovered(begin, point, flaws)

    def failed(self, begin: Begin, point: int, *, onwards: bool) -> Left:
        """Has the call at `point` fail, and with `onwards` every later one; `ERRORS` says how."""
        self._from(begin.state, begin.config, begin.revision)
        code, _ = self._ended(begin.mode, point, ERRORS, onwards=onwards)
        config = self.target.seen().config
        fits = code == 6 or config == {0: AFTER, 1: BEFORE, 2: BEFORE, 3: BEFORE, 5: BEFORE}.get(code)
        flaws = [] if fits else [f"it ended with {code}, and this is configured: {config}; {self._told()}"]
        return self._recovered(begin, point, flaws, code)

    def _recovered(self, begin: Begin, point: int, flaws: list[str], code: int = KILLED) -> Left:
        recovered, _ = self._ended(RECOVER)
        if recovered not in (0, 1, 3):
            flaws.append(f"recover ended with {recovered}")
        return self._left(begin, point, flaws, code)

    def _left(self, begin: Begin, point: int, flaws: list[str], code: int) -> Left:
        journal = Journal.reading(self._state / JOURNAL)
        journal.verify()
        runs = run_history.runs(journal.entries())
        flaws += [f"run {run.id} is open: {run.reason}" for run in runs if run.open]
        outcome = runs[-1].outcome if runs else None
        seen = self.target.seen()
        stands = "before" if seen.config == BEFORE else "after" if seen.config == AFTER else "between"
        if stands != ("after" if outcome is Outcome.VERIFIED else "before"):
            flaws.append(f"it stands {stands}: {seen.config}")
        files = _files(self._state)
        again, _ = self._ended(RECOVER)
        if again or _files(self._state) != files or self.target.seen().revision != seen.revision:
            flaws.append("a second recovery did something")
        return Left(begin.phase, point, begin.calls[point - 1], code, outcome or "", stands, tuple(flaws))

    def _from(self, state: Path, config: dict[str, Any], revision: int = 0) -> None:
        shutil.rmtree(self._state, ignore_errors=True)
        shutil.copytree(state, self._state)
        self._state.chmod(0o700)
        self.target.order(config=config, **({"revision": revision} if revision else {}))

    def _kept(self, name: str) -> Path:
        return Path(shutil.copytree(self._state, self._folder / name))

    def _done(self, mode: str) -> tuple[str, ...]:
        code, met = self._ended(mode)
        assert code == (0 if mode in ("apply", "prove") else 3), (mode, code, self._told())
        return tuple(met)

    def _ended(
        self, mode: str, point: int = 0, errors: Mapping[str, int] | None = None, *, onwards: bool = False
    ) -> tuple[int, list[str]]:
        arguments = [mode, str(self._state), self.target.url, str(PLAYBOOKS), *self._mutant]
        assert self._forks.stdin
        assert self._forks.stdout
        asked = Asked(point, CHANGES, arguments, errors or {}, onwards)
        self._forks.stdin.write(json.dumps(asdict(asked)) + "\n")
        self._forks.stdin.flush()
        ended = json.loads(self._forks.stdout.readline())
        return ended["code"], ended["met"]

    def _told(self) -> str:
        told = self._folder / "state.told"
        return told.read_text()[-2000:] if told.exists() else ""


def nth_of(calls: Sequence[str], name: str, nth: int) -> int:
    """The place, counted from 1, of the nth call of `name`; from the end where `nth` is negative."""
    places = [place for place, call in enumerate(calls, 1) if call == name]
    return places[nth - 1 if nth > 0 else nth]


def chosen(begin: Begin, every: int) -> list[int]:
    """Points for a short sweep: the end of each transaction, each second thing that is sent, each nth of the rest."""
    ends: list[int] = []
    sent: list[int] = []
    others: list[int] = []
    for point, call in enumerate(begin.calls, 1):
        (ends if call == "unlink" else sent if call.startswith("send") else others).append(point)
    return sorted(ends + sent[::2] + others[::every])


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
