"""Ground truths, diagnoses and a small recording for the tests of the benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from latdoctor.evaluation.diagnose_runs import RankedCause, VariantAnswer
from latdoctor.evaluation.ground_truth import GroundTruth, IncidentContext, RunKind, TimeRange
from latdoctor.evaluation.recording import RecordingAttempt
from latdoctor.evidence.bundle import Artifact, Bundle, Context
from latdoctor.evidence.model import Window

START = 1_000_000.0
PAGE = """ref_arrivals_total{{replica="0"}} {count}
ref_queue_depth{{replica="0"}} {count}
"""


def ground_truth(run: str, *causes: str, kind: RunKind = RunKind.LIVE, severity: str = "usual") -> GroundTruth:
    return GroundTruth(run, kind, scenario=run, seed=1, severity=severity, causes=causes)


def answered(
    run: str,
    ranking: Mapping[str, float] | Sequence[str] = (),
    *,
    view: str = "plain",
    cited: Sequence[str] = (),
    moved: Sequence[str] | None = None,
    unknown: Sequence[str] | None = None,
    named: Sequence[str] | None = None,
) -> VariantAnswer:
    """An answer that ranks these causes, each 0.9 sure where no probability is given; named from 0.6 on."""
    ramp = ranking if isinstance(ranking, Mapping) else dict.fromkeys(ranking, 0.9)
    reported = [name for name, p in ramp.items() if p >= 0.6] if named is None else list(named)
    return VariantAnswer(
        run=run,
        view=view,
        kind="named" if reported else "none",
        named=tuple(reported),
        ranked=tuple(RankedCause(name, p, name in reported, tuple(cited)) for name, p in ramp.items()),
        verdict="critical",
        seconds=0.1,
        moved=None if moved is None else tuple(moved),
        unknown=None if unknown is None else tuple(unknown),
    )


def page(number: int, at: float, port: int = 1, body: str = "") -> Artifact:
    source = f"http://127.0.0.1:{port}/metrics"
    text = body or PAGE.format(count=10 * number)
    return Artifact(f"prometheus/{port}-s-{number:05d}.prom", "prometheus", f"{port}-s", source, at, text.encode())


def recording(seconds: int = 20, servers: int = 1) -> Bundle:
    """A page of each server every second from START on."""
    pages = tuple(page(number, START + number, port) for number in range(seconds + 1) for port in range(1, servers + 1))
    return Bundle(Context("reference", 0.5), Window(START, START + seconds), pages)


def attempt(run: str = "x", *causes: str, spoiled: Sequence[str] = ()) -> RecordingAttempt:
    reported = IncidentContext(
        TimeRange(START + 1, START + 7), TimeRange(START + 9, START + 17), "http://127.0.0.1:2/metrics"
    )
    return RecordingAttempt(recording(servers=2), reported, ground_truth(run, *causes), tuple(spoiled))
