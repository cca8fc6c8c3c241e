"""python -m tests.crash.racing STATE URL PLAYBOOKS COUNT: so many processes execute one plan at the same moment.

A line for each: its number, how it ended, why. Who runs goes on watching till all others have ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from latdoctor.journal.state_dir import JOURNAL
from latdoctor.journal.store import Journal
from latdoctor.remediation.executor import execute
from latdoctor.remediation.observation import Observation, Observe
from latdoctor.remediation.planner import PlanRequest, build_plan
from latdoctor.remediation.playbook_library import read_library
from tests.crash.mending import PLAYBOOK, entered


def main(state: Path, url: str, playbooks: Path, count: int) -> None:
    library, world = read_library([playbooks]), entered(state, url, helps=True)
    plan = build_plan(
        PlanRequest(library.find(PLAYBOOK), {}), library, world.access, world.now(), world.journal.clock()
    )
    Journal.opened(state / JOURNAL)
    begun, begin = os.pipe()
    over, end = os.pipe()
    heard, told = os.pipe()

    def once() -> None:
        os.close(begin)
        os.close(end)
        os.read(begun, 1)  # till the parent closes its side
        own = entered(state, url, helps=True)
        result = execute(plan, library, replace(own, observe=_after(lambda: os.read(over, 1), own.observe)))
        os.write(told, f"{os.getpid()} {result.outcome} {result.reason}\n".encode())

    children = [_child(once) for _ in range(count)]
    os.close(begin)
    os.close(told)
    with os.fdopen(heard, "rb") as lines:
        for number in range(count):
            sys.stdout.write(lines.readline().decode())
            if number == count - 2:
                os.close(end)
    for child in children:
        os.waitpid(child, 0)


def _after(wait: Callable[[], object], look: Observe) -> Observe:
    def later(seconds: float) -> Observation:
        wait()
        return look(seconds)

    return later


def _child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
