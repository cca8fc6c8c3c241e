"""What kind of server an admin interface belongs to, by what its configuration looks like."""

from __future__ import annotations

from latdoctor.remedy.deadline import Deadline
from latdoctor.remedy.http import Asked, exchange, json_object
from latdoctor.remedy.target import Access

READING = 5.0  # seconds
# A group or field that only this kind has.
_TELLING = {"reference": "batching", "reference-router": "weights"}


def kind_of(access: Access) -> str:
    """`reference`, `reference-router`, or `unknown`. Raises OperationError where it does not answer, or refuses us."""
    url = f"{access.target.admin}/admin/config"
    found = json_object(exchange(Asked("GET", url), access.token, Deadline.after(READING)), url)
    return next((kind for kind, field in _TELLING.items() if field in found), "unknown")
