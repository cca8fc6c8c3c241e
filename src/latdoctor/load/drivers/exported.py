"""What an exported file contains: the plan, how many times its rates are sent, and the request."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from latdoctor.load.drivers.share import MAX_TIMES
from latdoctor.load.plan import LoadPlan
from latdoctor.load.request_template import RequestTemplate

ATTAINMENT = 0.99  # share of the requests answered within the SLO: `capacity measure` has the same default


class ExportedLoad(Struct, frozen=True, forbid_unknown_fields=True):
    """`request`: of a server other than the reference server."""

    plan: LoadPlan
    times: Annotated[float, Meta(gt=0, le=MAX_TIMES)] = 1.0
    request: RequestTemplate | None = None


def decode(text: str) -> ExportedLoad:
    """The load in an exported file. Raises msgspec.ValidationError."""
    return msgspec.json.decode(text, type=ExportedLoad)
