"""The scores as a page of documentation and as a few lines for a screen. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from latdoctor.evaluation.calibration import Fit
from latdoctor.evaluation.scoring import (
    OURSELVES,
    PAIR_APART,
    PAIR_RUNS,
    DiagnosisScores,
    FalseAlarmRate,
    GroupScore,
    PairScore,
)
from latdoctor.evaluation.statistics import BootstrapEstimate, Proportion

_HEAD = """# How right the diagnosis is

`latdoctor lab bench diagnosis {chosen} --page FILE` writes this page.

It is about incidents that were really played against the reference server, and made telemetry of GPU faults. What was
wrong in a run lies where no diagnosis looks; whether a run was spoiled is decided before it is diagnosed. In brackets:
the 95 % interval, Wilson's for shares, bootstrapped for means. AC@k is the share of the true causes among the first k
of the answer's own order."""


def page(scores: DiagnosisScores, fit: Fit | None = None) -> str:
    """The whole page as Markdown."""
    parts = [
        _HEAD.format(chosen=scores.runs.chosen),
        _counted(scores),
        "## In short\n\n" + _table(("", "value"), _short(scores)),
        f"## Beside other methods, on the same runs\n\n{_PEERS}\n\n"
        + _table(_PEER_COLUMNS, _peers(scores))
        + "\n\n"
        + "\n".join(_leads(scores)),
        "## By family\n\n" + _table(_ROW_COLUMNS, _rows(scores.families)),
        "## By kind of run and severity\n\n" + _table(_ROW_COLUMNS, _rows((*scores.kinds, *scores.severities))),
        "## Where nothing is wrong\n\n"
        + _table(
            ("runs", "in which a cause was named"), ((one.name, _alarms(one.false_alarms)) for one in scores.well)
        ),
        f"## Hard pairs\n\n{_APART}\n\n"
        + _table(("cause", "easily taken for", "told apart"), _pairs(scores.hard_pairs)),
        "## Without a source\n\nEach beside the same runs with that source.\n\n"
        + _table(_ROW_COLUMNS, _rows(scores.withheld)),
        "## At the wrong time\n\n" + _table(_ROW_COLUMNS, _rows(scores.wrong_time)),
        "## Causes that the catalogue does not know\n\n" + _LEFT_OUT + "\n\n" + _table(*_unknown(scores)),
        "## How sure, and how right\n\n" + _table(("mean probability", "right", "runs"), _bins(scores)),
        *([_fitted(fit)] if fit else []),
        "## What was missed\n\n" + _table(("run", "wrong in it", "ranked first", "named"), _misses(scores)),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


_PEERS = """Each method ranks metrics by how they changed from before the incident to it; to name causes it gets a
mapping from metrics to causes that was fitted on the families that were looked at. A run at which it breaks counts as a
failure. `latdoctor` is judged on the same runs: those in which something is wrong and somebody looked before.

Each enters twice. *Scraped*: with the series as servers, clients and host show them, which is what a user of such a
method has. *Signals*: with what latdoctor made of these series, which is a part of its diagnosis already.

A run that was trained on is read by a mapping without it, though with every other seed of the very same fault on the
very same machine. That is the most that can be done for a method; whoever has a new incident has no such runs. So
*never looked at* has the runs of families that no mapping was fitted on, and no rule changed for;
[bench-mapping.md](bench-mapping.md) tells what a mapping is worth with all runs of a cause left out."""
_LEFT_OUT = """The true causes of a run are taken out of the catalogue, and the same evidence is diagnosed again. Naming
anything then is wrong, unless it is hard to tell from what was taken out or really there besides."""
_APART = f"""Of the runs with the first and without the second, those in which the first ranks before the second.
`few`: there are fewer than {PAIR_RUNS} of them."""
_ROW_COLUMNS = ("", "runs", "AC@1", "AC@3", "named nothing", "named ones right", "sureness")
_PEER_COLUMNS = ("method", "reads", "AC@1", "AC@1, never looked at", "AC@3", "Avg@5", "both of two", "broke", "time")


def summary(scores: DiagnosisScores) -> str:
    """A few lines for a screen."""
    lines = [_counted(scores), *(f"{name:<38} {value}" for name, value in _short(scores))]
    lines += [f"{f'{peer.name}, {peer.metrics}':<38} AC@1 {_share(peer.ac1)}" for peer in scores.peers]
    lines += _leads(scores)
    lines += [f"missed: {miss.run}: {miss.first or 'nothing'}" for miss in scores.misses]
    return "\n".join(lines) + "\n"


def told(fit: Fit) -> str:
    """The fitted temperature in one line."""
    before, after = fit.before.ece, fit.after.ece
    return (
        f"temperature {fit.temperature:g}, fitted on {fit.fitted_on} looks; on {fit.judged_on} others ECE "
        f"{_estimate(before, percent=False)} without it, {_estimate(after, percent=False)} with it\n"
    )


def _counted(scores: DiagnosisScores) -> str:
    runs = scores.runs
    missing = f" Of {runs.chosen} {runs.missing} of {runs.planned} are not among them." if runs.missing else ""
    return (
        f"{runs.wrong} played runs with something wrong, {runs.well} with nothing wrong, {runs.made} of made "
        f"telemetry; {runs.spoiled_tries} spoiled tries, {runs.given_up} runs given up; version {scores.tool_version}."
        f"{missing}"
    )


def _short(scores: DiagnosisScores) -> Iterator[tuple[str, str]]:
    yield "AC@1", _share(scores.ac1)
    yield "AC@3", _share(scores.ac3)
    yield "Avg@5", _estimate(scores.avg5)
    yield "both of two", _share(scores.both_of_two)
    yield "AC@1, played runs alone", _share(scores.played.ac1)
    yield "AC@3, played runs alone", _share(scores.played.ac3)
    yield "AC@1, tuned families", _share(scores.tuned.ac1)
    yield "AC@1, held-out families", _share(scores.held_out.ac1)
    yield "named causes that are right", _share(scores.named_right)
    yield "runs in which nothing was named", _share(scores.abstained)
    yield "false alarms", _alarms(scores.false_alarms)
    yield "false alarms, played runs alone", _alarms(scores.played_false_alarms)
    yield "hard pairs told apart", _told_apart(scores.hard_pairs)
    yield "wrongly named with the cause unknown", _share(scores.unknown_named)
    yield "Brier score of the top cause", _estimate(scores.brier, percent=False)
    yield "calibration error (ECE)", _estimate(scores.ece, percent=False)
    yield "cited findings that the fault moved", _estimate(scores.grounded)
    slowest = "" if scores.slowest is None else f", at most {scores.slowest:.2f} s"
    yield "from a bundle to its diagnosis", f"{_seconds(scores.seconds.value)} on average{slowest}"


def _alarms(alarms: FalseAlarmRate) -> str:
    if alarms.bound is None:
        return _counted_share(alarms.share)
    # Of none seen the exact bound 1 - 0.05^(1/n) is what the rule of three says, nearly.
    of_three = "" if alarms.share.right else f", below 3/{alarms.share.of}"
    return f"{_counted_share(alarms.share)}; the true rate is at most {alarms.bound:.1%}{of_three} (one-sided 95 %)"


def _peers(scores: DiagnosisScores) -> Iterator[tuple[str, ...]]:
    for peer in sorted(scores.peers, key=lambda one: -(one.ac1.value or 0.0)):
        name = f"**{peer.name}**" if peer.name == OURSELVES else peer.name
        shares = (_share(one) for one in (peer.ac1, peer.held_out, peer.ac3))
        both = _share(peer.both_of_two)
        yield (name, peer.metrics, *shares, _estimate(peer.avg5), both, str(peer.crashed), _seconds(peer.seconds))


def _leads(scores: DiagnosisScores) -> Iterator[str]:
    """How far ahead the diagnosis is, for each kind of metrics that others read."""
    ours = next((peer.ac1.value for peer in scores.peers if peer.name == OURSELVES), None)
    best: dict[str, float] = {}
    for peer in scores.peers:
        if peer.name != OURSELVES and peer.ac1.value is not None:
            best[peer.metrics] = max(best.get(peer.metrics, 0.0), peer.ac1.value)
    if ours is not None:
        yield from (f"Ahead of the best that reads {name}, by AC@1: {ours - one:.2f}." for name, one in best.items())


def _rows(rows: Sequence[GroupScore]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        of = row.accuracy
        ramp = "-" if row.sureness is None else f"{row.sureness:.2f}"
        shares = (_share(of.ac1), _share(of.ac3), _share(row.abstained), _share(row.named_right))
        yield (row.name, str(of.ac1.of), *shares, ramp)


def _pairs(pairs: Sequence[PairScore]) -> Iterator[tuple[str, ...]]:
    for pair in pairs:
        few = "" if pair.enough or pair.separated.value is None else " (few)"
        yield f"`{pair.cause}`", f"`{pair.neighbour}`", f"{_counted_share(pair.separated)}{few}"


def _told_apart(pairs: Sequence[PairScore]) -> str:
    """How many of the pairs, each way counted, reach their share, and how many have the runs for it."""
    seen = [pair for pair in pairs if pair.separated.value is not None]
    apart, enough = sum(pair.apart for pair in seen), sum(pair.enough for pair in seen)
    reached = f"{apart} of {len(seen)} in {PAIR_APART:.0%} of the runs or more"
    return f"{reached}; {enough} of {len(pairs)} with {PAIR_RUNS} runs"


def _unknown(scores: DiagnosisScores) -> tuple[tuple[str, ...], Iterator[tuple[str, ...]]]:
    rows = ((f"`{one.cause}`", _counted_share(one.wrongly_named)) for one in scores.left_out)
    return ("taken out", "something is wrongly named"), rows


def _bins(scores: DiagnosisScores) -> Iterator[tuple[str, ...]]:
    for one in scores.bins:
        yield f"{one.probability:.3f}", f"{one.right:.3f}", str(one.of)


def _fitted(fit: Fit) -> str:
    rows = (
        (f"{one.temperature:g}", *(_estimate(x, percent=False) for x in (one.log_loss, one.brier, one.ece)))
        for one in (fit.before, fit.after)
    )
    said = (
        f"Fitted on {fit.fitted_on} looks at families that were looked at: {fit.temperature:g}. "
        f"Judged on {fit.judged_on} runs of the others and runs in which nothing is wrong:"
    )
    return f"## The temperature\n\n{said}\n\n" + _table(("temperature", "log loss", "Brier", "ECE"), rows)


def _misses(scores: DiagnosisScores) -> Iterator[tuple[str, ...]]:
    for miss in scores.misses:
        causes, named = (", ".join(f"`{name}`" for name in names) or "-" for names in (miss.causes, miss.named))
        yield miss.run, causes, f"`{miss.first}`" if miss.first else "nothing", named


def _table(columns: Sequence[str], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return "Nothing to tell."
    return "\n".join([f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *lines])


def _share(one: Proportion) -> str:
    if one.value is None or one.low is None or one.high is None:
        return "-"
    return f"{one.value:.1%} [{one.low:.1%}–{one.high:.1%}]"


def _counted_share(one: Proportion) -> str:
    return "-" if one.value is None else f"{one.right:g} of {one.of}: {_share(one)}"


def _estimate(one: BootstrapEstimate, *, percent: bool = True) -> str:
    if one.value is None or one.low is None or one.high is None:
        return "-"
    if percent:
        return f"{one.value:.1%} [{one.low:.1%}–{one.high:.1%}]"
    return f"{one.value:.3f} [{one.low:.3f}–{one.high:.3f}]"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
