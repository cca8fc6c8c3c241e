"""A playbook on one screen: what it fixes, what it changes, how a run is verified, its risk and its undo."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.remediation.change import Undo
from latdoctor.remediation.playbook import Playbook
from latdoctor.remediation.playbook_library import Library
from latdoctor.report.fit_to_screen import Line, Rank, fitted
from latdoctor.report.plain_conditions import plain_text
from latdoctor.report.playbook import OCCASIONS, PlaybookTexts, default_of, facts, next_step, settings_of
from latdoctor.report.remediation_plan import UNDO_TEXTS, labelled, verification_lines, whole
from latdoctor.report.text_utils import WIDTH


def playbook_answer(playbook: Playbook, library: Library, texts: PlaybookTexts) -> tuple[Line, ...]:
    """At most 24 lines."""
    head = [
        Line(playbook.title[:WIDTH], "bold"),
        Line(f"{playbook.id} · {facts(playbook)} · for {', '.join(playbook.targets)}"[:WIDTH], "dim"),
    ]
    return fitted(
        [head, list(_purpose(playbook, library, texts)), list(_terms(playbook, library)), list(_next(playbook))]
    )


def _purpose(playbook: Playbook, library: Library, texts: PlaybookTexts) -> Iterator[Line]:
    if playbook.trigger in OCCASIONS:
        yield from labelled("Used", OCCASIONS[playbook.trigger], most=2)
    else:
        label = "Fixes" if playbook.treats == "cause" else "Eases"
        titles = "; ".join(texts.causes.get(name, name) for name in playbook.addresses)
        yield from labelled(label, titles, most=3)
    for number, (_, stage) in enumerate(library.stages(playbook), 1):
        yield from labelled("Changes" if number == 1 else "", f"{number}  {stage.title}", most=1)
    if settings := tuple(settings_of(playbook)):
        yield from labelled("Changes", "; ".join(settings), most=5)
    if playbook.parameters:
        defaults = ", ".join(f"{one.name}={default_of(one) or 'VALUE'}" for one in playbook.parameters)
        yield from labelled("Set", f"--set {defaults}", Rank.EVIDENCE)


def _terms(playbook: Playbook, library: Library) -> Iterator[Line]:
    yield from verification_lines(playbook)
    if effect := str(playbook.effect):
        yield from labelled("Effect", plain_text(effect), Rank.EVIDENCE)
    steps = [*playbook.steps, *(step for _, other in library.stages(playbook) for step in other.steps)]
    undo = "; ".join(dict.fromkeys(UNDO_TEXTS[Undo(step.undo)] for step in steps))
    later = "; later: latdoctor rollback RUN" if any(step.undo == Undo.RESTORE for step in steps) else ""
    yield from labelled("Undo", f"{undo}{later}")


def _next(playbook: Playbook) -> Iterator[Line]:
    yield whole("Next", next_step(playbook))
    yield Line(" it shows the plan; --apply runs it · -v guards, parameters, explanation", "dim", Rank.MORE)
