"""Recordings of real servers: a folder for each run, with an operator's bundles and the ground truth beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.errors import BundleError
from latdoctor.evaluation.ground_truth import MachineLoad
from latdoctor.evaluation.store import read_json
from latdoctor.load.machine_state import OTHERS
from latdoctor.load.summary import GeneratorHealth, Summary

HEALTHY_BUNDLE, INCIDENT_BUNDLE, TRUTH = "before.tar.zst", "incident.tar.zst", "truth.json"
FAILED_SHARE = 0.01  # requests without an answer beyond which the P99 is a failure
CONTENTION = "infra.cpu.contention"
_MOVES = 0.7  # the share of the incident's P99 at which its fault's removal counts as its effect


class ClientFigures(Struct, frozen=True):
    """What the clients measured in one phase. Times in seconds, from the planned instant."""

    requests: int
    answered: int
    refused: int
    failed: int
    timed_out: int
    p50: float | None
    p99: float | None

    @classmethod
    def of(cls, whole: Summary) -> ClientFigures:
        """The figures of one phase of a load."""
        counts = whole.counts
        return cls(
            counts.requests, counts.answered, counts.refused, counts.failed, counts.timed_out, whole.p50, whole.p99
        )

    @property
    def failing(self) -> bool:
        """More than one in a hundred got no answer."""
        return self.requests - self.answered > FAILED_SHARE * self.requests

    def within(self, slo: float) -> bool:
        """Whether users got what the SLO promises."""
        return not self.failing and self.p99 is not None and self.p99 <= slo


class RealTruth(Struct, frozen=True):
    """What was done in a run, and its effect on the clients. Times are unix seconds, but `slo` is seconds.

    `causes`: the injected ones; empty where the run is healthy. `accepts`: causes that are as right. `spoiled`: why the
    run counts for nothing. `lasted` is the end of the incident.
    """

    run: str
    scenario: str
    server: str
    version: str
    date: str
    tool_version: str
    causes: tuple[str, ...]
    accepts: tuple[str, ...]
    since: float
    lasted: float
    slo: float
    before: ClientFigures
    during: ClientFigures
    after: ClientFigures
    generator: GeneratorHealth
    machine: MachineLoad
    spoiled: tuple[str, ...] = ()

    @property
    def right(self) -> tuple[str, ...]:
        """The causes that a diagnosis may name."""
        return (*self.causes, *self.accepts)

    @property
    def also_true(self) -> tuple[str, ...]:
        """Causes that are true beside the injected one: other processes had the processors of the machine."""
        others = self.machine.others
        return (CONTENTION,) if others is not None and others > OTHERS and CONTENTION not in self.right else ()

    @property
    def is_outage(self) -> bool:
        """Whether users had less than the SLO promises during the incident."""
        return not self.during.within(self.slo)


def not_an_effect(truth: RealTruth) -> Iterator[str]:
    """Why the run does not show what its fault does: no calm before, no harm, or harm that outlasts the fault."""
    if not truth.before.within(truth.slo):
        yield f"not healthy before: {_shown(truth.before)}"
    if not truth.causes:
        if truth.is_outage:
            yield f"not healthy, and no fault was injected: {_shown(truth.during)}"
        return
    if not truth.is_outage:
        yield f"the fault had no effect on the clients: {_shown(truth.during)}"
        return
    if truth.after.failing or not (truth.after.within(truth.slo) or _lower(truth.after, truth.during)):
        yield f"without the fault the clients did not recover: {_shown(truth.after)}"


def _lower(after: ClientFigures, during: ClientFigures) -> bool:
    if during.failing:
        return not after.failing
    return after.p99 is not None and during.p99 is not None and after.p99 <= _MOVES * during.p99


def _shown(figures: ClientFigures) -> str:
    p99 = "no P99" if figures.p99 is None else f"P99 {figures.p99 * 1000:.0f} ms"
    return f"{p99}, {figures.answered} of {figures.requests} answered"


class RealRecording(Struct, frozen=True):
    """One run on disk."""

    folder: Path
    truth: RealTruth

    @property
    def healthy(self) -> Path:
        return self.folder / HEALTHY_BUNDLE

    @property
    def incident(self) -> Path:
        return self.folder / INCIDENT_BUNDLE


def real_recordings(folder: Path) -> tuple[RealRecording, ...]:
    """The complete runs of `folder`, by name. Raises BundleError for a damaged one."""
    found = []
    for path in sorted(folder.glob(f"[!.]*/{TRUTH}")):  # a run that is being recorded has a name with a dot
        truth = read_json(path, RealTruth)
        if truth.run != path.parent.name:
            raise BundleError("the ground truth belongs to another run", where=str(path))
        found.append(RealRecording(path.parent, truth))
    return tuple(found)


def write_real_truth(folder: Path, truth: RealTruth) -> None:
    """Complete the run in `folder`: a run without a ground truth does not count."""
    (folder / TRUTH).write_bytes(msgspec.json.format(msgspec.json.encode(truth), indent=1) + b"\n")
