"""What an incident cost, in words: never more than was seen."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.incident.document import Impact
from latdoctor.units import format_value


def impact_lines(impact: Impact) -> Iterator[str]:
    """Seconds, requests, and how far all that was seen."""
    if not impact.span:
        yield "It has just begun: there is no time yet of which anything could be told."
        return
    span, seen = format_value(impact.span, "time"), format_value(impact.seen, "time")
    if impact.over is None:
        yield f"How long it was over its SLO is not known: of its {span} none could be judged."
    else:
        judged = impact.over + (impact.within or 0.0)
        over, of = format_value(impact.over, "time"), format_value(judged, "time")
        yield f"Over its SLO for {over} of the {of} in which that could be told, of {span} in all."
    if impact.requests is None or impact.requests_over is None:
        yield "How many requests were late is not known: nothing that was seen counts them."
    else:
        late, of = format_value(impact.requests_over, "count"), format_value(impact.requests, "count")
        if impact.requests_over_most is not None and impact.requests_over_most > impact.requests_over:
            late = f"{late} to {format_value(impact.requests_over_most, 'count')}"
        counted = format_value(impact.counted, "time")
        yield f"{late} of {of} requests were answered later than the SLO, in the {counted} in which they were counted."
    if impact.worst_p99 is not None:
        slos = ", ".join(format_value(one, "time") for one in impact.slo_p99)
        slo = f" (SLO {slos})" if slos else ""
        yield f"The highest P99 of any sample was {format_value(impact.worst_p99, 'time')}{slo}."
    share = f"{impact.unseen / impact.span:.0%}".replace("%", " %")
    yield f"The service was watched for {seen} of {span}; nobody saw the other {share}, which may have been as bad."
