"""A measurement of capacity, and the plan from one, as text."""

from __future__ import annotations

from latdoctor.planning.capacity.binding import TEXT
from latdoctor.planning.capacity.measurement import CapacityMeasurement, CapacitySource
from latdoctor.planning.capacity.plan import CapacityPlan
from latdoctor.sanitize import counted
from latdoctor.units import elapsed, format_value


def measurement_text(found: CapacityMeasurement) -> str:
    """The limit and what binds it; what to plan; whether throughput collapses; how it was found."""
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
    if found.collapse is not None:
        best, deepest = found.collapse
        lines.append(
            f"throughput collapses under load, {best.rate:.3g}/s with {best.in_flight} in flight, {deepest.rate:.3g}/s "
            f"with {deepest.in_flight}: bound the requests in flight; the limit varies from run to run"
        )
    valid = "; ".join(found.problems) if found.problems else "generator valid, machine quiet"
    lines.append(f"{len(found.levels)} levels, {elapsed(found.lasted)}; {valid}")
    lines.append("next: save it with -o json > capacity.json, then latdoctor capacity plan capacity.json --rate N")
    return "\n".join(lines)


def history_text(found: CapacityMeasurement) -> str:
    """The limit as far as the history shows it, the highest rate observed, and what to do next."""
    objective, history = f"P{found.attainment * 100:g} ≤ {format_value(found.slo, 'time')}", found.history
    if history is None:
        return measurement_text(found)
    low, high = found.interval
    if found.limit <= 0:
        lines = [f"no load of the history met {objective}"]
    elif history.at_least:
        lines = [f"limit at least {found.limit:.3g} req/s within {objective}: {found.problems[0]}"]
    elif found.first_failing:
        lines = [f"limit {found.limit:.3g} req/s meets {objective} ({low:.3g}–{high:.3g}); the history went beyond it"]
    else:
        reached = f"; the history reached {history.reached * 100:.0f} % of it" if history.reached else ""
        lines = [f"limit {found.limit:.3g} req/s meets {objective} ({low:.3g}–{high:.3g}), by a model{reached}"]
    if found.limit > 0 and not history.at_least:
        lines.append(f"with 30 % reserve plan {found.planned:.3g} req/s per replica")
    speeds = ", ".join(f"{rate:.3g}/s with {working:.3g}" for working, rate in history.speeds)
    batch = f"; batches of {history.batch[0]:.3g} to {history.batch[1]:.3g}" if history.batch else ""
    lines.append(f"{format_value(history.service_time, 'time')} a request at the lowest load{batch}")
    lines.append(f"answered with so many requests in a replica: {speeds}")
    each = counted(history.replicas, "replica")
    lines.append(f"{elapsed(found.lasted)} of {each} ({found.target}), {history.windows} steps of {history.step:g} s")
    measure = "capacity measure URL, of a replica without users"
    step = f"latdoctor {measure}" if history.at_least else "the same with -o json > capacity.json, then capacity plan"
    return "\n".join([*lines, f"next: {step}"])


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
    if found.collapses:
        lines.append(
            "its throughput collapses under load: P99 of the model is too low, the limit varies from run to run"
        )
    if found.source is CapacitySource.HISTORY:
        lines.append("estimated from history, not measured" + ("; fewer may do" if found.at_most else ""))
    label = "but" if found.source is CapacitySource.HISTORY else "spoiled"
    lines += [f"{label}: {one}" for one in found.problems]
    return "\n".join(lines)
