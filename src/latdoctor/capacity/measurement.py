"""The result of `latdoctor capacity measure`, as it is saved and read again."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from latdoctor.capacity.binding import Bound
from latdoctor.capacity.level import Level
from latdoctor.capacity.queue_model import QueueModel
from latdoctor.errors import UsageError

SCHEMA_VERSION = "1"
RESERVE = 0.3  # of the limit: for what is not like the measured load
_MOST_BYTES = 16 << 20


class CapacityMeasurement(Struct, frozen=True):
    """Rates in requests per second of one replica or whatever `address` is, times in seconds.

    `limit`: the highest rate at which the share `attainment` of requests is within `slo`, with its 95 % `interval`.
    `first_failing`: None where no level failed; the limit is then at least this. `model_limit`: what the queueing model
    says, `model_error` its relative difference; None without a model. `problems`: why the figures cannot be trusted.
    """

    address: str
    target: str
    date: str
    tool_version: str
    slo: float
    attainment: float
    limit: float
    interval: tuple[float, float]
    first_failing: float | None
    bound_by: Bound
    is_cliff: bool | None
    levels: tuple[Level, ...]
    lasted: float
    model: QueueModel | None
    model_limit: float | None
    model_error: float | None
    problems: tuple[str, ...] = ()
    schema_version: str = SCHEMA_VERSION

    @property
    def planned(self) -> float:
        """What to plan for one replica."""
        return self.limit * (1 - RESERVE)


def read_measurement(path: Path) -> CapacityMeasurement:
    """Raises UsageError for a file that is none."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UsageError(f"more than {_MOST_BYTES >> 20} MiB", where=str(path))
        found = msgspec.json.decode(content, type=CapacityMeasurement)
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})", where=str(path)) from error
    except msgspec.MsgspecError as error:
        step = "latdoctor capacity measure URL -o json > FILE"
        raise UsageError(f"not a measurement of capacity ({error})", where=str(path), next_step=step) from error
    if found.schema_version != SCHEMA_VERSION:
        raise UsageError(f"schema version {found.schema_version} is not supported", where=str(path))
    return found
