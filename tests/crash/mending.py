"""One run, rollback or recovery against tests/crash/service.py, to be killed.

Usage: python -m tests.crash.mending apply|prove|fail|rollback|recover STATE URL PLAYBOOKS [mutant]

`apply` verifies, `prove` too, with a proof that is pending first, `fail` does not and takes itself back. What is
observed is made up, so that a run takes no time: all that is real here are the journal, the locks, and the way to the
target. `mutant` journals a change after it was made.
"""

from __future__ import annotations

import sys
from pathlib import Path

from latdoctor.evidence.model import Evidence, Origin, Reading, Window
from latdoctor.http.client import Secret
from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.remediation import rollback, run_history
from latdoctor.remediation.actions import require_action
from latdoctor.remediation.change import ChangeState, Deadline, ensure
from latdoctor.remediation.executor import _Run, execute, resume
from latdoctor.remediation.history import History, no_history
from latdoctor.remediation.observation import Observation
from latdoctor.remediation.planner import PlanRequest, build_plan
from latdoctor.remediation.playbook_library import read_library
from latdoctor.remediation.run_context import RunContext
from latdoctor.remediation.run_history import ChangeRef
from latdoctor.remediation.target import Access, Target

PLAYBOOK = "test.two-steps"


def main(mode: str, state: Path, url: str, playbooks: Path, *, mutant: bool) -> int:
    library = read_library([playbooks])
    if mutant:
        _Run._apply = _late  # type: ignore[method-assign]
    world = entered(state, url, helps=mode != "fail", remembers=mode != "prove")
    if mode in ("apply", "fail", "prove"):
        plan = build_plan(
            PlanRequest(library.find(PLAYBOOK), {}), library, world.access, world.now(), world.journal.clock()
        )
        return execute(plan, library, world).outcome.exit_code
    runs = run_history.runs(world.journal.entries())
    if mode == "rollback":
        ended = rollback.roll_back_run(runs[-1].id, lambda target: world, lambda: runs)
        return ended.outcome.exit_code
    results = [
        rollback.recover_run(run, lambda target: world, lambda run, world: resume(run, library, world))
        for run in runs
        if run.open
    ]
    return max((result.outcome.exit_code for result in results), default=0)


def entered(state: Path, url: str, *, helps: bool, remembers: bool = True) -> RunContext:
    """All that a run is given."""
    seen = _Seen(helps=helps)
    return RunContext(
        journal=Journal.opened(state / JOURNAL),
        state=state,
        access=Access(Target("service", "reference", admin=url), Secret("hush")),
        observe=seen.observe,
        save_bundle=lambda bundle, path: None,
        now=seen.now,
        clock=seen.clock,
        sleep=seen.sleep,
        history=_history if remembers else no_history,
    )


def _late(self: _Run, touched: ChangeRef) -> None:
    """What a run must never do: change first, journal then."""
    change = self._plan.stages[touched.stage].changes[touched.index]
    resource = require_action(change.action).resource(self._context.access, change.resource)
    ensure(change, ChangeState.AFTER, resource, Deadline.after(15))
    self._journal.append("change.intended", touched)
    self._changed.append(touched)
    self._journal.append("change.made", touched)


def _history(step: float) -> History:
    count = int(400 / step)
    return History(step, {("latency.p99", "service"): (3.0,) * count, ("arrival.rate", "service"): (40.0,) * count})


class _Seen:
    """P99 falls with the change, or does not; its clock moves by what is waited for."""

    def __init__(self, *, helps: bool) -> None:
        self._helps = helps
        self._looks = 0
        self._passed = 0.0

    def clock(self) -> float:
        return self._passed

    def now(self) -> float:
        return 1_770_000_000.0 + self._passed

    def sleep(self, seconds: float) -> None:
        self._passed += seconds

    def observe(self, seconds: float) -> Observation:
        began = self.now()
        self._passed += seconds
        p99 = 0.3 if self._looks and self._helps else 3.0
        self._looks += 1
        window = Window(began, self.now())
        rows = {"latency.p99": p99, "arrival.rate": 40.0, "completion.rate": 40.0}
        readings = tuple(Reading(name, "service", value, Origin("page"), window) for name, value in rows.items())
        return Observation(Evidence(readings=readings), {}, {}, began, self.now())


if __name__ == "__main__":
    wanted, where, address, folder, *rest = sys.argv[1:]
    sys.exit(main(wanted, Path(where), address, Path(folder), mutant=bool(rest)))
