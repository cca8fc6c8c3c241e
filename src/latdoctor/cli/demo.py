"""`latdoctor demo`: the field's incident on this machine, live, and its diagnosis."""

from __future__ import annotations

import time
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from latdoctor.evidence.bundle import Bundle
    from latdoctor.lab.playing import Stage

SCENARIO = "promo-rush"
SLO = "500ms"
WINDOW = "5s"
DEVELOPS = 5.0  # seconds between the beginning of the incident and the look: a queue has to build up


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="PATH", help="Keep what was seen in the incident, as a bundle.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the load.")] = 1,
) -> None:
    """Play a real incident live and diagnose it.

    The scenario is promo-rush: a real server, a real rush, and a look at it while it happens. It takes a minute and a
    half.

    Exit codes: 0 played · 1 server or generator broke · 2 the laboratory's packages are missing.
    """
    from concurrent.futures import ThreadPoolExecutor

    from latdoctor import __version__
    from latdoctor.cli.answering import rule_set, the_diagnosis
    from latdoctor.cli.lab import need_extra
    from latdoctor.cli.lab_run import print_report
    from latdoctor.cli.screen import notice_console, result_console
    from latdoctor.evidence.bundle_files import must_be_new, save
    from latdoctor.lab.playing import Watcher, play
    from latdoctor.lab.scenario import INCIDENT, find
    from latdoctor.report import console

    need_extra()
    if keep is not None:
        must_be_new(keep)
    notices, screen = notice_console(), result_console()
    stages: Queue[Stage | None] = Queue()
    with ThreadPoolExecutor(1) as beside:
        playing = beside.submit(play, find(SCENARIO), seed, Watcher(on_stage=stages.put, say=notices.print))
        playing.add_done_callback(lambda _: stages.put(None))
        while (stage := stages.get()) is not None:
            notices.print(f"phase {stage.phase}")
            if stage.phase == "before":
                screen.print(f"While all is well: {the_diagnosis(_look(stage), rule_set(())).verdict.says}\n")
            elif stage.phase == INCIDENT:
                time.sleep(DEVELOPS)
                bundle = _look(stage)
                screen.print("While the rush is on:\n")
                console.render(the_diagnosis(bundle, rule_set(())), screen)
                screen.print()
                if keep is not None:
                    save(bundle, keep, __version__)
        report = playing.result()
    screen.print("What really happened:\n")
    print_report(report)


def _look(stage: Stage) -> Bundle:
    """What `latdoctor diagnose --server URL --pid N --slo 500ms` looks at now."""
    from latdoctor.cli.answering import look_now
    from latdoctor.cli.options import Given

    pages = tuple(f"{page}/metrics" for page in stage.pages)
    return look_now(Given(server=pages, pid=stage.pids[0], nvml=False, window=WINDOW, slo=SLO))
