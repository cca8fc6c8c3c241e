"""A series in a CSV file: a time and a value in each row, as monitoring systems and notebooks export it (pandas).

The columns are those called `time` (or `timestamp`, `date`, `datetime`, `ds`) and `value` (or `rate`, `count`,
`requests`, `y`), else the first two. Times are unix seconds or milliseconds, or dates in ISO 8601; without a zone they
are taken as UTC. An empty value is a gap.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latdoctor.errors import OperationError, SourceError
from latdoctor.evidence.model import Origin, Series
from latdoctor.gap_code import GapCode, code_of_os_error
from latdoctor.regular_file import read_regular
from latdoctor.sanitize import clean

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTES = 256 << 20
_TIMES = ("time", "timestamp", "date", "datetime", "ds")
_VALUES = ("value", "rate", "count", "requests", "y")
_FORM = "write rows such as 2026-11-27T10:00:00Z,42 under the heading time,value"
_MILLISECONDS = 1e11  # unix times from here on are not in seconds: that would be the year 5138


def read_series(path: Path) -> Series:
    """The series in the file at `path`. Raises SourceError, and OperationError without pandas."""
    try:
        import pandas as pd
    except ImportError as error:
        step = "pip install 'latdoctor[plan]'"
        raise OperationError("reading a CSV file needs pandas, which is not installed", next_step=step) from error
    where = clean(str(path))
    try:
        raw = read_regular(path, MAX_BYTES)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
        raise SourceError(reason, where=where, next_step="check its path", code=code_of_os_error(error)) from error
    if len(raw) > MAX_BYTES:
        raise SourceError(f"is larger than {MAX_BYTES >> 20} MiB", where=where, next_step="leave out old rows",
                          code=GapCode.TOO_LARGE)  # fmt: skip
    try:
        frame = _frame(raw, pd)
        times = _seconds(frame.iloc[:, 0], pd)
        values = pd.to_numeric(frame.iloc[:, 1], errors="raise").astype(float)
    except (ValueError, TypeError, OverflowError) as error:
        reason = f"is no series of times and values: {clean(str(error), 120)}"
        raise SourceError(reason, where=where, next_step=_FORM) from error
    order = times.sort_values(kind="stable").index
    samples = [(float(times[place]), float(values[place])) for place in order]
    samples = [(time, value) for time, value in samples if math.isfinite(time) and not math.isnan(value)]
    if not samples:
        raise SourceError("has no rows with a time and a value", where=where, next_step=_FORM, code=GapCode.EMPTY)
    ordered = tuple(time for time, _ in samples), tuple(value for _, value in samples)
    return Series("arrival.rate", f"file/{clean(path.name, 100)}", *ordered, Origin(path.name))


def _frame(raw: bytes, pd: Any) -> pd.DataFrame:
    """Two columns, time and value. Raises ValueError."""
    head = raw[:4096].decode("utf-8-sig", "replace").splitlines()
    cells = [cell.strip().strip('"').lower() for cell in head[0].split(",")] if head else []
    if len(cells) < 2:
        raise ValueError("its first line has no two columns")
    named = not _is_number(cells[1])
    frame = pd.read_csv(io.BytesIO(raw), header=0 if named else None, skipinitialspace=True, encoding="utf-8-sig")
    time = next((cells.index(name) for name in _TIMES if named and name in cells), 0)
    value = next((cells.index(name) for name in _VALUES if named and name in cells), 1 if time == 0 else 0)
    return frame.iloc[:, [time, value]]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return not cell  # an empty value of a file without a heading
    return True


def _seconds(column: pd.Series[Any], pd: Any) -> pd.Series[Any]:
    """Unix seconds. Raises ValueError."""
    if pd.api.types.is_numeric_dtype(column):
        numbers = column.astype(float)
        return numbers / 1000 if numbers.median() >= _MILLISECONDS else numbers
    times = pd.to_datetime(column, utc=True, format="ISO8601")
    return (times - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
