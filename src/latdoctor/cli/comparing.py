"""Two looks side by side, for `bundle diff` and `baseline compare`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from latdoctor.cli.screen import result_console
from latdoctor.evidence.differences import Difference
from latdoctor.evidence.judging import show
from latdoctor.evidence.model import Value
from latdoctor.evidence.signals import catalogue
from latdoctor.text import clean, counted

SHOWN = 30
_NAMES = 8


def print_differences(found: Sequence[Difference], titles: tuple[str, str], *, every: bool) -> None:
    """What differs, the largest change first; all values where `every`."""
    console = result_console()
    both = [one for one in found if one.before is not None and one.after is not None]
    changed = both if every else [one for one in both if one.is_one]
    table = Table("subject", "signal", *titles, "times", box=None, pad_edge=False)
    for one in changed if every else changed[:SHOWN]:
        times = "" if one.factor is None else f"{one.factor:.3g}"
        row = (one.subject, one.signal, _shown(one.signal, one.before), _shown(one.signal, one.after), times)
        table.add_row(*(clean(text) for text in row))
    if changed:
        console.print(table)
    if len(changed) > SHOWN and not every:
        console.print(f"({counted(len(changed) - SHOWN, 'more difference')}: -v)")
    alike = sum(not one.is_one for one in both)
    console.print(f"{counted(alike, 'value')} within 20 % of each other, {len(both) - alike} beyond")
    unseen = ([one.signal for one in found if one.before is None], [one.signal for one in found if one.after is None])
    for title, missing in zip(titles, unseen, strict=True):
        names = list(dict.fromkeys(missing))
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES and not every else ""
        if names:
            console.print(clean(f"not seen {title}: {', '.join(names if every else names[:_NAMES])}{more}", 20_000))


def _shown(signal: str, value: Value | None) -> str:
    if value is None:
        return ""
    if signal in catalogue():
        return show(signal, value)
    return value if isinstance(value, str) else f"{value:g}"
