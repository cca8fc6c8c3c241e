"""A comparison as text."""

from __future__ import annotations

from latdoctor.planning.comparison.comparison import Comparison, Design
from latdoctor.planning.comparison.effect import TEXT, ComparisonVerdict, Effect, Quantity

_NAMES = {Quantity.P50: "P50", Quantity.P99: "P99", Quantity.GOODPUT: "goodput", Quantity.ERRORS: "errors"}


def comparison_text(found: Comparison) -> str:
    """The verdict, a line for each quantity and mode, and what it rests on."""
    name = _NAMES[found.quantity]
    lines = [
        f"B is {TEXT[found.verdict]} in {name}" if found.verdict.is_difference else f"{name}: {TEXT[found.verdict]}"
    ]
    lines[0] += _because(found)
    lines += [f"A: {found.a}", f"B: {found.b}", ""]
    lines += [_line(one) for one in found.effects]
    for mode in found.modes:
        moved = "" if mode.effect is None else f"; median {_ratio(mode.effect)}: {TEXT[mode.effect.verdict]}"
        lines.append(f"{mode.name} requests: {mode.share_a:.1%} of A, {mode.share_b:.1%} of B{moved}")
    lines.append("")
    of = "pairs of runs" if found.design is Design.PAIRED else "runs or slices of each side"
    lines.append(f"{found.pairs} {of}; intervals of 97.5 %. Assumed:")
    lines += [f"  {one}" for one in found.assumptions]
    lines += [f"against it: {one}" for one in found.problems]
    return "\n".join(lines)


def _because(found: Comparison) -> str:
    if found.verdict is ComparisonVerdict.NO_DIFFERENCE:
        return f": a difference of {found.margin * 100:g} % is ruled out"
    if found.verdict is ComparisonVerdict.INCONCLUSIVE and found.needed is not None and found.needed > found.pairs:
        return f": a difference of {found.margin * 100:g} % needs {found.needed} pairs (--pairs {found.needed})"
    return ""


def _line(effect: Effect) -> str:
    return f"{_NAMES[effect.quantity]:8} {_ratio(effect):40} {TEXT[effect.verdict]}"


def _ratio(effect: Effect) -> str:
    if effect.ratio is None or effect.interval is None or effect.a is None or effect.b is None:
        return "not measured"
    low, high = effect.interval
    sides = f"{effect.quantity.shown(effect.a)} → {effect.quantity.shown(effect.b)}"
    if effect.quantity is Quantity.ERRORS:
        return f"{sides} ({low * 100:+.2f} to {high * 100:+.2f} points)"
    return f"{sides}, × {effect.ratio:.2f} ({low:.2f}–{high:.2f})"
