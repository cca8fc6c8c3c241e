"""What kind of server an admin interface belongs to, by what its configuration looks like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from latdoctor.errors import OperationError
from latdoctor.remedy.deadline import Deadline
from latdoctor.remedy.http import ask
from latdoctor.remedy.target import Access

READING = 5.0  # seconds
# A group or field that only this kind has.
_TELLING = {"reference": "batching", "reference-router": "weights"}


def kind_of(access: Access) -> str:
    """`reference`, `reference-router`, or `unknown`. Raises OperationError where it does not answer, or refuses us."""
    url = f"{access.target.admin}/admin/config"
    answer = ask("GET", url, headers=access.as_headers(), deadline=Deadline.after(READING))
    try:
        found: Mapping[str, Any] = msgspec.json.decode(answer.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise OperationError("what it answers is no configuration", where=url) from error
    return next((kind for kind, field in _TELLING.items() if field in found), "unknown")
