"""`latdoctor demo`: the field's incident on this machine, live, and its diagnosis."""

from __future__ import annotations

import time
from queue import Queue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latdoctor.diagnosis.result import Diagnosis
    from latdoctor.lab.playing import Stage

SCENARIO = "promo-rush"
SLO = "500ms"
WINDOW = "5s"
DEVELOPS = 5.0  # seconds between the beginning of the incident and the look: a queue has to build up


def demo() -> None:
    """Play a real incident live and diagnose it.

    The scenario is promo-rush: a real server, a real rush, and a look at it while it happens.

    Exit codes: 0 played · 1 server or generator broke · 2 the laboratory's packages are missing.
    """
    from concurrent.futures import ThreadPoolExecutor

    from latdoctor.cli.lab import need_extra
    from latdoctor.cli.lab_run import print_report
    from latdoctor.cli.screen import notice_console, result_console
    from latdoctor.lab.playing import Watcher, play
    from latdoctor.lab.scenario import find
    from latdoctor.report import console

    need_extra()
    notices, screen = notice_console(), result_console()
    stages: Queue[Stage | None] = Queue()
    with ThreadPoolExecutor(1) as beside:
        playing = beside.submit(play, find(SCENARIO), 1, Watcher(on_stage=stages.put, say=notices.print))
        playing.add_done_callback(lambda _: stages.put(None))
        while (stage := stages.get()) is not None:
            notices.print(f"phase {stage.phase}")
            if stage.phase == "before":
                verdict = _look(stage).verdict
                screen.print(f"While all is well: {verdict.says}\n")
            elif stage.phase == "incident":
                time.sleep(DEVELOPS)
                screen.print("While the rush is on:\n")
                console.render(_look(stage), screen)
                screen.print()
        report = playing.result()
    screen.print("What really happened:\n")
    print_report(report)


def _look(stage: Stage) -> Diagnosis:
    """What `latdoctor diagnose --server URL --pid N --slo 500ms` says now."""
    from latdoctor.cli.answering import look_now, rule_set, the_diagnosis
    from latdoctor.cli.options import Given

    given = Given(
        server=tuple(f"{page}/metrics" for page in stage.pages), pid=stage.pids[0], nvml=False, window=WINDOW, slo=SLO
    )
    return the_diagnosis(look_now(given), rule_set(()))
