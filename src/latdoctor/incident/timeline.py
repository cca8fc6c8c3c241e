"""The timeline of an incident: everything that its entries in the journal tell, in order."""

from __future__ import annotations

from collections.abc import Sequence

from latdoctor.incident.document import Stage, Timeline
from latdoctor.incident.state import Incident

__all__ = ["Timeline", "timeline"]


def timeline(incident: Incident, stages: Sequence[Stage] = ()) -> Timeline:
    """`incident` from its start to its last entry; `stages` is how its SOP stands. Raises msgspec.ValidationError."""
    raise NotImplementedError
