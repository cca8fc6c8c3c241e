"""Evidence as tables (pandas), one row for each value: for notebooks and databases.

Times are UTC. Numbers are in base units, in `value`, with the signal's unit beside them; texts are in `text`. What
could not be seen is in `gaps` and nowhere else: an absent row is no zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.model import Evidence, Labels, Value, is_unknown
from latdoctor.output_file import cannot_write

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
_TIMES = ("time", "start", "end")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "readings": ("signal", "subject", "unit", "value", "text", "bound", "start", "end", "labels", "note", "origin"),
    "series": ("signal", "subject", "unit", "labels", "time", "value"),
    "distributions": ("signal", "subject", "unit", "labels", "start", "end", "low", "high", "count", "origin"),
    "events": ("time", "signal", "subject", "text", "fields", "origin"),
    "gaps": ("source", "code", "reason", "signals", "subject", "next_step", "origin"),
    "subjects": ("subject", "parent"),
}


class TableFormat(StrEnum):
    """Files of tables."""

    PARQUET = "parquet"
    CSV = "csv"


def tables(evidence: Evidence) -> dict[str, pd.DataFrame]:
    """The tables by name, each with all its columns, also where it has no row."""
    import pandas as pd

    rows: dict[str, Iterable[Row]] = {
        "readings": _readings(evidence),
        "series": _series(evidence),
        "distributions": _distributions(evidence),
        "events": _events(evidence),
        "gaps": _gaps(evidence),
        "subjects": ({"subject": one.id, "parent": one.parent or ""} for one in evidence.subjects),
    }
    return {name: _frame(pd, rows[name], columns) for name, columns in _COLUMNS.items()}


def write_tables(found: Mapping[str, pd.DataFrame], folder: Path, form: TableFormat) -> list[Path]:
    """A file for each table in the new `folder`. Raises BundleError where it cannot be written."""
    written = []
    try:
        folder.mkdir(parents=True)
        for name, table in found.items():
            path = folder / f"{name}.{form}"
            if form is TableFormat.PARQUET:
                table.to_parquet(path, index=False)
            else:
                table.to_csv(path, index=False)
            written.append(path)
    except OSError as error:
        raise cannot_write(folder, "the tables", error) from error
    return written


def _frame(pd: Any, rows: Iterable[Row], columns: tuple[str, ...]) -> pd.DataFrame:
    table = pd.DataFrame.from_records(list(rows), columns=list(columns))
    for name in columns:
        if name in _TIMES:
            seconds = pd.to_numeric(table[name]).astype("float64")
            table[name] = pd.to_datetime(seconds, unit="s", utc=True).astype("datetime64[us, UTC]")
        elif name in ("value", "low", "high", "count"):
            table[name] = pd.to_numeric(table[name]).astype("float64")
        else:
            table[name] = table[name].fillna("").astype("string")
    return table


def _unit(signal: str) -> str:
    known = catalogue().get(signal)
    return known.unit.name if known else ""


def _text(labels: Labels) -> str:
    return ",".join(f"{name}={value}" for name, value in labels)


def _number(value: Value) -> tuple[float | None, str]:
    """The number, or the text; an unknown one is neither."""
    if isinstance(value, str):
        return None, value
    return (None, "") if is_unknown(value) else (float(value), "")


def _readings(evidence: Evidence) -> Iterator[Row]:
    for one in evidence.readings:
        value, text = _number(one.value)
        yield {
            "signal": one.signal,
            "subject": one.subject,
            "unit": _unit(one.signal),
            "value": value,
            "text": text,
            "bound": one.bound,
            "start": one.window.start,
            "end": one.window.end,
            "labels": _text(one.labels),
            "note": one.note,
            "origin": str(one.origin),
        }


def _series(evidence: Evidence) -> Iterator[Row]:
    for one in evidence.series:
        unit, labels = _unit(one.signal), _text(one.labels)
        for time, value in zip(one.times, one.values, strict=True):
            yield {
                "signal": one.signal,
                "subject": one.subject,
                "unit": unit,
                "labels": labels,
                "time": time,
                "value": value,
            }


def _distributions(evidence: Evidence) -> Iterator[Row]:
    for one in evidence.distributions:
        for bucket in one.buckets:
            yield {
                "signal": one.signal,
                "subject": one.subject,
                "unit": _unit(one.signal),
                "labels": _text(one.labels),
                "start": one.window.start,
                "end": one.window.end,
                "low": bucket.low,
                "high": bucket.high,
                "count": bucket.count,
                "origin": str(one.origin),
            }


def _events(evidence: Evidence) -> Iterator[Row]:
    for one in evidence.events:
        yield {
            "time": one.time,
            "signal": one.signal,
            "subject": one.subject,
            "text": one.text,
            "fields": ",".join(f"{name}={value}" for name, value in one.fields.items()),
            "origin": str(one.origin),
        }


def _gaps(evidence: Evidence) -> Iterator[Row]:
    for one in evidence.gaps:
        yield {
            "source": one.source,
            "code": one.code.value,
            "reason": one.reason,
            "signals": " ".join(one.signals),
            "subject": one.subject or "",
            "next_step": one.next_step,
            "origin": str(one.origin or ""),
        }
