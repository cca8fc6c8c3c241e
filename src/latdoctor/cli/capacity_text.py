"""A measurement of capacity, and the plan from one, as text."""

from __future__ import annotations

from latdoctor.planning.capacity.binding import TEXT
from latdoctor.planning.capacity.measurement import CapacityMeasurement
from latdoctor.planning.capacity.plan import CapacityPlan
from latdoctor.units import elapsed, format_value


def measurement_text(found: CapacityMeasurement) -> str:
    """Three lines: the limit and what binds it; what to plan; how it was found."""
    objective = f"P{found.attainment * 100:g} ≤ {format_value(found.slo, 'time')}"
    if found.limit <= 0:
        lines = [f"no rate meets {objective}: the lowest, {min(one.rate for one in found.levels):.3g} req/s, failed"]
    else:
        low, high = found.interval
        ends = (
            f"first that fails {found.first_failing:.3g}" if found.first_failing else "no level failed: at least this"
        )
        shape = {True: "; a cliff, not a slope", False: "; a slope, not a cliff", None: ""}[found.is_cliff]
        lines = [
            f"limit {found.limit:.3g} req/s meets {objective} ({low:.3g}–{high:.3g}); {ends}",
            f"bound by {TEXT[found.bound_by]}{shape}",
            f"with 30 % reserve plan {found.planned:.3g} req/s per replica{_of_model(found)}",
        ]
    valid = "; ".join(found.problems) if found.problems else "generator valid, machine quiet"
    lines.append(f"{len(found.levels)} levels, {elapsed(found.lasted)}; {valid}")
    lines.append("next: save it with -o json > capacity.json, then latdoctor capacity plan capacity.json --rate N")
    return "\n".join(lines)


def _of_model(found: CapacityMeasurement) -> str:
    if found.model_limit is None or found.model_error is None:
        return ""
    return f"; the model said {found.model_limit:.3g} ({found.model_error * 100:+.0f} %)"


def plan_text(found: CapacityPlan) -> str:
    objective = f"P{found.attainment * 100:g} ≤ {format_value(found.slo, 'time')}"
    p99 = "" if found.p99 is None else f"; P99 about {format_value(found.p99, 'time')} (model)"
    lines = [
        f"{found.replicas} replicas for {found.rate:g} req/s with {objective}: {found.per_replica:.3g} each, "
        f"of a limit of {found.limit:.3g}{p99}",
        f"{found.least} would do without the {found.reserve * 100:g} % reserve",
    ]
    if found.with_one_lost is not None:
        share = found.with_one_lost
        then = "the SLO holds" if share <= 1 else "the SLO is missed"
        lines.append(f"with one replica lost each of the others has {share * 100:.0f} % of its limit: {then}")
    lines += [f"spoiled: {one}" for one in found.problems]
    return "\n".join(lines)
