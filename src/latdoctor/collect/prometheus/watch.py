"""Scrapes servers over the window: at its start, at its end, and in between for the gauges."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from latdoctor.collect.prometheus import scrape
from latdoctor.collect.source import Clock, Collected, Request
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Gap

MAX_SERVERS = 32
MAX_PAGES = 11
MAX_PAGE_BETWEEN = 1 << 20  # of larger pages, only those of the start and the end are kept
_STOPPED = "-stopped.prom"  # ends the name of the last page of a server that gave no more, for a replay to know
_GONE = "look whether its process still runs, and at its log (--log FILE)"


@dataclass(slots=True)
class _Watched:
    """One server during the window: what came of it so far."""

    number: int
    target: scrape.Target
    pages: list[Artifact] = field(default_factory=list)
    failures: list[scrape.Answer] = field(default_factory=list)
    small: bool = True
    stopped: bool = False  # its last answer was none

    def add(self, answer: scrape.Answer, at: float, collector: str) -> None:
        self.stopped = answer.body is None
        if answer.body is None:
            self.failures.append(answer)
            return
        self.small = self.small and len(answer.body) <= MAX_PAGE_BETWEEN
        group = f"{self.number}-{file_name(self.target.name)}"
        name = f"{collector}/{group}-{len(self.pages):02d}.prom"
        self.pages.append(Artifact(name, collector, group, self.target.shown, at, answer.body))

    def kept(self) -> Sequence[Artifact]:
        if not (self.stopped and self.pages):
            return self.pages
        last = self.pages[-1]
        return [*self.pages[:-1], replace(last, name=last.name.removesuffix(".prom") + _STOPPED)]


def watch(request: Request, clock: Clock, collector: str, hidden: tuple[str, ...]) -> Collected:
    """The pages of `request.servers` as artifacts of `collector`, one group for each server.

    A server that gives no page at all is a gap that hides the signals `hidden`. One that fails at the start is asked
    again at the end only; where all fail at the start, nobody waits for the end.
    """
    watched, gaps = _targets(request.servers, collector, hidden)
    ticks = max(1, min(MAX_PAGES - 1, int(request.window))) if request.window > 0 else 0
    start = clock.now()
    for tick in range(ticks + 1):
        at_edge = tick in (0, ticks)
        step = request.window / max(1, ticks)
        due = start + step * tick
        if not at_edge and clock.now() > due + step:
            continue  # a server that hangs has used up this turn
        asked = [one for one in watched if at_edge or (one.pages and one.small and not one.failures)]
        if tick and not any(one.pages for one in watched):
            break
        if tick and due > clock.now():
            clock.sleep(due - clock.now())
        _scrape(asked, request.timeout, clock, collector)
    # A server that stopped answering while it was watched may be the incident itself: it is told first.
    for one in sorted(watched, key=lambda one: not (one.stopped and one.pages)):
        gaps.extend(_failures(one, collector, hidden, start))
    return Collected(tuple(page for one in watched for page in one.kept()), tuple(gaps))


def is_before_the_stop(artifact: Artifact) -> bool:
    """Is this the last page of a server that stopped answering while it was watched?"""
    return artifact.name.endswith(_STOPPED)


def _targets(servers: Sequence[str], collector: str, hidden: tuple[str, ...]) -> tuple[list[_Watched], list[Gap]]:
    watched: list[_Watched] = []
    gaps: list[Gap] = []
    for given in dict.fromkeys(servers):
        try:
            target = scrape.target(given)
        except ValueError:  # its text may hold a password
            reason = f"{scrape.shown_url(given)} is no address of a server"
            gaps.append(Gap(collector, reason, hidden, None, "give http://HOST:PORT"))
            continue
        if len(watched) == MAX_SERVERS:
            reason = f"{target.shown} is left out: at most {MAX_SERVERS} servers are watched at once"
            gaps.append(Gap(collector, reason, hidden, f"server/{target.name}", "give fewer --server"))
        elif all(one.target.url != target.url for one in watched):
            watched.append(_Watched(len(watched) + 1, target))
    return watched, gaps


def _scrape(asked: Sequence[_Watched], timeout: float, clock: Clock, collector: str) -> None:
    if not asked:
        return
    before, began = clock.now(), time.monotonic()
    answers = scrape.fetch([one.target for one in asked], timeout)
    after = clock.now()
    for one, answer in zip(asked, answers, strict=True):
        # When this answer was there, although another server may have kept us waiting for longer.
        at = min(before + (answer.done - began), after)
        one.add(answer, at, collector)


def _failures(one: _Watched, collector: str, hidden: tuple[str, ...], start: float) -> Iterable[Gap]:
    if not one.failures:
        return
    last = one.failures[-1]
    if not one.pages:
        yield Gap(collector, f"{one.target.shown} {last.why}", hidden, f"server/{one.target.name}", last.next_step)
        return
    if one.stopped:
        since = f"its last answer came {one.pages[-1].taken_at - start:.0f} s into the look"
        reason = f"{one.target.shown} stopped answering while it was watched: {since}, then it {last.why}"
        yield Gap(collector, reason, hidden, None, _GONE)
        return
    tried = len(one.pages) + len(one.failures)
    reason = f"{one.target.shown}: {len(one.failures)} of {tried} scrapes failed: it {last.why}"
    yield Gap(collector, reason, (), None, last.next_step)


def file_name(text: str) -> str:
    """`text` as part of an artifact's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+|\.{2,}", "_", text)[:80]
