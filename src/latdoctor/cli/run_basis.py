"""What justifies a run of `latdoctor remediate`: a diagnosis, or a forecast (`--from`), or a playbook that is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from latdoctor.case_from_bundle import remedy_of
from latdoctor.cli.plan_files import read_bounded
from latdoctor.decode_errors import UNDECODABLE
from latdoctor.diagnosis.document import parse_diagnosis
from latdoctor.errors import UsageError
from latdoctor.planning.forecast.result import SCHEMA_VERSION, Forecast, NoForecast
from latdoctor.planning.standby_basis import NoBasis, no_basis
from latdoctor.remediation.planner import DiagnosisRef
from latdoctor.remediation.playbook import Playbook, Trigger
from latdoctor.remediation.playbook_library import Library
from latdoctor.remediation.run_result import Outcome, Reason, Result
from latdoctor.remediation.standby import ForecastRef, clock
from latdoctor.report.forecast import NO_FORECAST_NEXT, NO_FORECAST_TEXTS

STANDBY, STANDBY_ROUTER = "app.scale.standby", "app.scale.standby-router"
REPLICAS = "replicas"  # the parameter of these playbooks
_AGAIN = "latdoctor forecast … --per-replica RATE --replicas N -o json > FILE"


@dataclass(frozen=True, slots=True)
class RunBasis:
    """A playbook with the diagnosis or the forecast behind it. `refusal`: why nothing is done on that basis."""

    playbook: Playbook
    diagnosis: DiagnosisRef | None = None
    forecast: ForecastRef | None = None
    refusal: Result | None = None


class _Probe(Struct, frozen=True):
    """A key that every forecast has, and no diagnosis."""

    no_forecast: NoForecast | UnsetType | None = UNSET


def run_basis(
    name: str, file: Path | None, settings: Mapping[str, str], books: Library, *, on_cluster: bool, now: float
) -> RunBasis:
    """From `--playbook` and `--from`. `on_cluster`: a workload is named with --kube. Raises UsageError, SourceError."""
    if not name and file is None:
        raise _unnamed()
    if file is None:
        book = books.find(name)
        if book.trigger is Trigger.FORECAST:
            raise UsageError(f"{book.id} needs a forecast", next_step=f"--from FILE, of {_AGAIN}")
        return RunBasis(book)
    raw = read_bounded(file)
    if _is_forecast(raw):
        book = books.find(name or (STANDBY if on_cluster else STANDBY_ROUTER))
        return _of_forecast(_forecast(raw, file), book, settings, now)
    if name:
        raise _unnamed()
    return _of_diagnosis(raw, file, books)


def _unnamed() -> UsageError:
    return UsageError(
        "name the playbook: either --playbook ID, or --from FILE with a diagnosis or a forecast",
        next_step="latdoctor playbooks list",
    )


def _is_forecast(raw: bytes) -> bool:
    try:
        return msgspec.json.decode(raw, type=_Probe).no_forecast is not UNSET
    except UNDECODABLE:
        return False


def _forecast(raw: bytes, file: Path) -> Forecast:
    try:
        found = msgspec.json.decode(raw, type=Forecast)
    except UNDECODABLE as error:
        raise UsageError(f"not a forecast: {error}", where=str(file), next_step=_AGAIN) from error
    if found.schema_version != SCHEMA_VERSION:
        raise UsageError(f"schema version {found.schema_version} is not supported", where=str(file))
    return found


def _of_forecast(found: Forecast, book: Playbook, settings: Mapping[str, str], now: float) -> RunBasis:
    if book.trigger is Trigger.INCIDENT:
        raise UsageError(
            f"{book.id} answers an incident, and the file is a forecast", next_step=f"--playbook {STANDBY}"
        )
    lack = no_basis(found, now)
    if lack in (NoBasis.NOT_BETTER, NoBasis.MISSES) and (REPLICAS in settings or book.trigger is Trigger.PEAK_PASSED):
        lack = None  # the operator says how many, or it only speaks against fewer
    if lack is NoBasis.NO_REPLICAS:
        raise UsageError("the forecast does not say how many replicas it needs", next_step=_AGAIN)
    if lack is not None:
        return RunBasis(book, refusal=_refusal(found, lack, book))
    plan, history = found.plan, found.history
    assert plan is not None  # by no_basis
    return RunBasis(
        book,
        forecast=ForecastRef(
            source=found.source,
            at=found.at or 0.0,
            evidence_end=history.end if history else 0.0,
            replicas=plan.replicas,
            rate=found.planning_value or 0.0,
            per_replica=plan.per_replica,
            reserve=plan.reserve,
            unit=found.unit,
            method=found.method or "",
        ),
    )


def _refusal(found: Forecast, lack: NoBasis, book: Playbook) -> Result:
    code, step = Reason.NO_FORECAST, "start as many as you judge right: --set replicas=N"
    match lack:
        case NoBasis.PAST:
            code, step = Reason.EVIDENCE_OUTDATED, "forecast again"
            text = f"the forecast is for {clock(found.at or 0.0)}, which is past"
        case NoBasis.NOT_BETTER:
            text = "no method was better than the last value on this history, so that no rise is foreseen"
        case NoBasis.MISSES:
            text = f"only {found.coverage or 0.0:.0%} of the rates were within the .9 quantile, on this history"
        case _:
            lacking = found.no_forecast or NoForecast.SHORT
            text, step = f"there is no forecast: {NO_FORECAST_TEXTS[lacking]}", NO_FORECAST_NEXT[lacking]
    return Result("", Outcome.REFUSED, text, step, playbook=book.id, code=code)


def _of_diagnosis(raw: bytes, file: Path, books: Library) -> RunBasis:
    try:
        diagnosis = parse_diagnosis(raw)
    except UNDECODABLE as error:
        raise UsageError(
            f"neither a diagnosis nor a forecast: {error}",
            where=str(file),
            next_step="latdoctor diagnose … -o json > FILE",
        ) from error
    remedy = remedy_of(diagnosis)
    if remedy is not None:
        return RunBasis(books.find(remedy[0]), remedy[1])
    named = ", ".join(cause.id for cause in diagnosis.causes if cause.named) or "no cause"
    raise UsageError(
        f"the diagnosis names {named}, which no playbook fixes",
        where=str(file),
        next_step="remedy it by hand: latdoctor explain CAUSE",
    )
