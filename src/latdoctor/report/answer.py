"""The answer on one screen: at most 24 lines of 80 columns, what is wrong first and one next command.

The default of `diagnose`; Markdown and the HTML page begin with the same lines. Everything else is behind -v. It has no
id of a check, no signal name and no subject inside a file. Lines are dropped, the least important first, until it
fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec import structs
from rich.cells import cell_len

from latdoctor.diagnosis.codes import AnswerKind, CheckStatus, FindingKind, Level, ReasonCode, UserImpact
from latdoctor.diagnosis.named_subjects import named_subjects
from latdoctor.diagnosis.next_sources import playbooks_for
from latdoctor.diagnosis.result import Check, Diagnosis, NextSource, RankedCause
from latdoctor.evidence.model import Gap, kind_of
from latdoctor.gap_code import GapCode
from latdoctor.remediation.diagnosed_parameters import diagnosed_names
from latdoctor.remediation.playbook_library import shipped_playbook
from latdoctor.remediation.target import TargetKind
from latdoctor.report import cluster_signs, diagnosis_text, time_scope
from latdoctor.report.fit_to_screen import HEIGHT, Line, Rank, fitted, sentence_lines
from latdoctor.report.headline import harm
from latdoctor.report.playbook import facts
from latdoctor.report.subject_names import part_of_service, shortened, subject_name
from latdoctor.report.text_utils import WIDTH, wrapped
from latdoctor.report.vital_signs import file_noun, measured
from latdoctor.units import percent

if TYPE_CHECKING:
    from rich.console import Console

_INDENT = 6  # of evidence below a cause
_MAX_CAUSES = 3
_MAX_EVIDENCE = 4
_MANY_SIGNALS = 10  # that a file does not show: a whole side of the service is missing in it
_THAN = 34  # columns of the name of what is compared with
_MIN_MOVED, _MAX_MOVED = 3, 8  # other changes in a comparison
_NEAR = 0.25  # a rival at least this probable is worth a line
_ADDRESS = re.compile(r"[\w.\[\]:-]+:\d{1,5}")
_NUMBER = re.compile(r"\d[\d.,\u202f\u00a0]*(?: ?(?:%|[µmn]?s|/s|[KMG]i?B|°C))?")
_PRECISE = re.compile(r"(?:\D*\d){3}")  # three digits: no two measurements agree in them by chance
_SENTENCE_END = re.compile(r"(?<=\.) (?=[A-Z])")


def answer(diagnosis: Diagnosis, height: int = HEIGHT) -> tuple[Line, ...]:
    """The lines for a screen of `height` lines."""
    parts = [
        [*_comparison(diagnosis), *_verdict(diagnosis)],
        list(_causes(diagnosis)),
        list(_moved(diagnosis)),
        list(_do(diagnosis)),
        [*_changes(diagnosis), *_zones(diagnosis), *_not_seen(diagnosis)],
        list(_more(diagnosis)),
    ]
    return fitted(parts, height)


def render(diagnosis: Diagnosis, console: Console) -> None:
    """Print the answer on one screen."""
    from rich.text import Text

    for line in answer(diagnosis):
        console.print(Text(line.text, style=line.style))


def text(diagnosis: Diagnosis, height: int = HEIGHT) -> str:
    """The same as plain text."""
    return "\n".join(line.text for line in answer(diagnosis, height)) + "\n"


def _verdict(diagnosis: Diagnosis) -> Iterator[Line]:
    """How bad it is in numbers, since when, and what was observed."""
    level = diagnosis.verdict.level
    for number, line in enumerate(wrapped(f"{level.upper()}  {harm(diagnosis)}", "", "  ")[:3]):
        yield Line(line, diagnosis_text.LEVEL_STYLE.get(level, "bold"), continued=number > 0)
    for number, line in enumerate(wrapped(time_scope.scope(diagnosis), "", "  ")[:2]):
        yield Line(line, "dim", continued=number > 0)


def _comparison(diagnosis: Diagnosis) -> Iterator[Line]:
    """Faster, slower or the same, by how much, and against what."""
    if diagnosis.against and diagnosis.against.speed:
        from latdoctor.report import comparison_screen

        speed = diagnosis.against.speed
        pair = diagnosis.against
        was, now = (verdict.level for verdict in pair.contrast.verdicts)
        of_files = pair.name == "now"  # else of two subjects of one observation
        than = shortened(PurePath(pair.than).name if of_files else subject_name(pair.than), _THAN)
        level = f" ({was})" if of_files and was != now else ""
        name = "" if of_files else f"{shortened(subject_name(pair.name), _THAN)} "
        text = f"{comparison_screen.headline(speed)}, {name}against {than}{level}"
        for number, line in enumerate(wrapped(text, "", "  ")[:2]):
            yield Line(line, comparison_screen.STYLE[speed.pace], continued=number > 0)


def _moved(diagnosis: Diagnosis) -> Iterator[Line]:
    """The causes that are gone, and what else changed, better or worse."""
    if diagnosis.against and diagnosis.against.speed:
        from latdoctor.report import comparison_screen

        of_files = diagnosis.against.name == "now"
        label = "Gone" if of_files else f"Only in {shortened(subject_name(diagnosis.against.than), _THAN)}"
        for shift in diagnosis.against.contrast.causes:
            if shift.before and shift.before.named and not (shift.after and shift.after.named):
                title = shortened(shift.title, WIDTH - len(label) - 4)
                yield Line(f" {label}  {title}", "bold", Rank.EVIDENCE)
        changes = comparison_screen.moved(diagnosis.against.values, diagnosis.against.speed)
        for number, one in enumerate(changes[:_MAX_MOVED]):
            line = comparison_screen.moved_row(one)
            yield Line(line.text, line.style, Rank.EVIDENCE if number < _MIN_MOVED else Rank.DETAIL)


def _causes(diagnosis: Diagnosis) -> Iterator[Line]:
    """The named causes with their evidence; else what is known of a cause, and the key numbers."""
    kind = diagnosis.answer.kind
    chosen = [cause for cause in diagnosis.causes if cause.id in diagnosis.answer.causes][:_MAX_CAUSES]
    checks = {check.id: check for check in diagnosis.checks}
    if kind in (AnswerKind.NAMED, AnswerKind.ONE_OF):
        if kind == AnswerKind.ONE_OF:
            yield Line("Cause: one of these; the evidence does not tell them apart", "bold")
        shown = _numbers(harm(diagnosis))
        for number, cause in enumerate(chosen, 1):
            yield from _cause(number, cause, diagnosis, shown, most=max(2, _MAX_EVIDENCE - len(chosen) + 1))
        if kind == AnswerKind.NAMED and (rival := _rival(diagnosis)):
            yield from _evidence_lines(rival, "    or: ")
        # By name: a cause of a cluster is found in it by its pods and nodes.
        cluster = structs.replace(diagnosis, vitals=cluster_signs.own(diagnosis))
        yield from (Line(text, continued=text.startswith("   ")) for text in measured(cluster))
        return
    yield from _unknown_cause(diagnosis, checks)
    if diagnosis.against and diagnosis.against.name != "now":
        return  # the changes show the numbers of each; those of both together would mix them
    yield from (Line(text, continued=text.startswith("   ")) for text in measured(diagnosis))


def _cause(number: int, cause: RankedCause, diagnosis: Diagnosis, shown: set[str], *, most: int) -> Iterator[Line]:
    checks = {check.id: check for check in diagnosis.checks}
    share = percent(cause.probability)
    width = WIDTH - cell_len(share) - 6
    place = part_of_service(cause, diagnosis)
    title = shortened(f"{cause.title} ({place})" if place else cause.title, width - 2)
    yield Line(f" {number}  {title}{' ' * max(2, WIDTH - 4 - cell_len(title) - cell_len(share))}{share}", "bold")
    for sentence in _evidence(cause, checks, shown)[:most]:
        yield from _evidence_lines(sentence, " " * _INDENT)


def _evidence(cause: RankedCause, checks: dict[str, Check], shown: set[str]) -> list[str]:
    """The sentences of what fired, strongest first.

    A number is printed once: a sentence is left out whose numbers another contains, or that repeats a precise one.
    """
    fired = [checks[name] for name in cause.evidence_for]
    fired.sort(key=lambda check: check.kind != FindingKind.SPECIFIC)
    found: list[str] = []
    for check in fired:
        numbers = _numbers(check.message)
        if check.message in shown or (numbers and numbers <= shown):
            continue
        poorer = next((one for one in found if _numbers(one) and _numbers(one) < numbers), None)
        if poorer:
            found[found.index(poorer)] = check.message
        elif any(_PRECISE.match(number) for number in numbers & shown):
            continue
        else:
            found.append(check.message)
        shown |= {check.message, *numbers}
    return found


def _numbers(sentence: str) -> set[str]:
    return set(_NUMBER.findall(sentence))


def _rival(diagnosis: Diagnosis) -> str:
    """A cause that is nearly as likely as a named one."""
    named = set(diagnosis.answer.causes)
    rival = next((one for one in diagnosis.causes if one.id not in named and one.probability >= _NEAR), None)
    return f"{rival.title} ({percent(rival.probability)})" if rival else ""


def _unknown_cause(diagnosis: Diagnosis, checks: dict[str, Check]) -> Iterator[Line]:
    level = diagnosis.verdict.level
    if level == Level.HEALTHY or (level == Level.INCONCLUSIVE and diagnosis.answer.kind == AnswerKind.NONE):
        return
    if diagnosis.answer.kind == AnswerKind.NONE:
        yield Line("Cause: unknown; no finding points at one", "bold")
        return
    fired = [check for check in checks.values() if check.status == CheckStatus.FIRED]
    hurts = level != Level.INCONCLUSIVE or any(check.severity for check in fired)
    heading = "Cause: unknown; no known cause fits these findings well enough"
    yield Line(heading if hurts else "Noticed; no cause follows from it", "bold")
    left = [checks[name].message for name in diagnosis.answer.unexplained]
    left = left or [check.message for check in fired]
    for sentence in left[:_MAX_EVIDENCE]:
        yield from _evidence_lines(sentence, "    ")
    nearest = next(iter(diagnosis.causes), None)
    if nearest and nearest.probability >= diagnosis_text.NEAR:
        against = next((checks[name] for name in nearest.evidence_against if name in checks), None)
        why = f"; against it: {_against(against)}" if against else ""
        sentence = f"nearest: {nearest.title} ({percent(nearest.probability)}){why}"
        yield from _evidence_lines(sentence, "    ")


def _against(check: Check) -> str:
    return check.message if check.status == CheckStatus.FIRED else f"not the case that {check.message}"


def _do(diagnosis: Diagnosis) -> Iterator[Line]:
    """The one safest next step, else what to do by hand, and the owner to page."""
    named = [cause for cause in diagnosis.causes if cause.id in diagnosis.answer.causes and cause.named]
    if not named:
        yield from _find_out(diagnosis)
        return
    first = named[0]
    playbooks = playbooks_for(named, diagnosis)
    if playbooks:
        yield from _command(f" Fix   latdoctor remediate --playbook {playbooks[0]}", *_at(diagnosis, playbooks[0]))
        yield from _labelled("", f"{_advice(playbooks[0])} shows the plan; --apply runs it", most=2)
    else:
        yield from _labelled("Do", _leading_sentences(first.remediation, 3), most=4)
    owners = list(dict.fromkeys(cause.owner for cause in named if cause.owner))
    if owners:
        yield Line(f" Page  {', '.join(owners)}{', if the fix does not help' if playbooks else ''}", rank=Rank.DO)


def _command(start: str, *options: str) -> Iterator[Line]:
    """A command that can be pasted: on one line, else its options on lines of their own."""
    lines = [" ".join((start, *options))]
    if len(lines[0]) > WIDTH:
        lines = [start]
        for option in options:
            if len(lines) > 1 and len(lines[-1]) + len(option) + 3 <= WIDTH:  # with a space and the continuation
                lines[-1] += f" {option}"
            else:
                lines.append(f"{' ' * 9}{option}")
    for number, line in enumerate(lines):
        end = "" if number == len(lines) - 1 else " \\"
        yield Line(f"{line}{end}", "bold", Rank.DO, continued=number > 0)


def _advice(name: str) -> str:
    """What a playbook does and costs; empty where it is not one of the shipped."""
    playbook = shipped_playbook(name)
    return f"{playbook.title} ({facts(playbook)});" if playbook else ""


def _at(diagnosis: Diagnosis, name: str) -> Iterator[str]:
    """The options that name the target to change: its workload and what shows the effect, else the server."""
    playbook = shipped_playbook(name)
    if playbook is not None and TargetKind.KUBERNETES in playbook.targets:
        causes = (one for one in diagnosis.causes if one.named and name in one.playbooks)
        subjects = (one for cause in causes for one in named_subjects(cause, diagnosis))
        yield f"--kube {_workload(diagnosis)}"
        yield from (f"--set {one}={names[0]}" for one, names in diagnosed_names(playbook, subjects).items())
    yield _server(diagnosis)


def _workload(diagnosis: Diagnosis) -> str:
    """The one workload that the diagnosis speaks of, as --kube names it."""
    subjects = (subject for check in diagnosis.checks for subject in check.subjects)
    names = {one.partition("/")[2] for one in subjects if kind_of(one) in ("deployment", "statefulset")}
    found = {one.partition("@")[0] for one in names}  # without the cluster
    return found.pop() if len(found) == 1 else "NAMESPACE/NAME"


def _server(diagnosis: Diagnosis) -> str:
    """The option that names a server: its address, or the name it has in the configuration."""
    read = {row.collector for row in diagnosis.coverage if row.status in ("read", "partly")}
    if not read & {"prometheus", "promql"}:  # files name no server that could be changed
        return f"--server URL{_slo_option(diagnosis)}"
    name = diagnosis.target.partition(" ")[0]
    if "promql" in read and "prometheus" not in read:  # then it is the address of a Prometheus
        places = [subject.rpartition("@")[2] for cause in diagnosis.causes if cause.named for subject in cause.subjects]
        name = next((place for place in places if _ADDRESS.fullmatch(place)), ".")
    if _ADDRESS.fullmatch(name):
        return f"--server http://{name}{_slo_option(diagnosis)}"
    return f"--server URL{_slo_option(diagnosis)}" if "." in name or "/" in name else f"--target {name}"


def _slo_option(diagnosis: Diagnosis) -> str:
    """The objective of the diagnosis, which a fix is held against; a configured target has its own."""
    limit = diagnosis.slo_p99
    if not limit:
        return ""
    return f" --slo {limit * 1000:g}ms" if limit < 1 else f" --slo {limit:g}s"


def _leading_sentences(text: str, most: int) -> str:
    """As many whole sentences of `text` as fit in `most` labelled lines; always the first."""
    sentences = _SENTENCE_END.split(text)
    fits = [n for n in range(1, len(sentences) + 1) if len(wrapped(" ".join(sentences[:n]), " " * 7, " " * 7)) <= most]
    return " ".join(sentences[: max(fits, default=1)])


def _evidence_lines(sentence: str, first: str) -> Iterator[Line]:
    """A sentence below a cause; its second line is indented further."""
    for number, line in enumerate(sentence_lines(sentence, first, " " * (_INDENT + 2), 4)):
        yield Line(line, rank=Rank.EVIDENCE, continued=number > 0)


def _labelled(label: str, sentence: str, *, most: int) -> Iterator[Line]:
    lines = sentence_lines(sentence, f" {label:<5} ", " " * 7, most)
    yield from (Line(line, rank=Rank.DO, continued=number > 0) for number, line in enumerate(lines))


def _find_out(diagnosis: Diagnosis) -> Iterator[Line]:
    """Where no cause is named: the source that would help most."""
    if diagnosis.verdict.level == Level.HEALTHY:
        return
    reasons = [reason for check in diagnosis.checks if check.required for reason in check.reasons]
    if file_noun(diagnosis) and (gap := _largest_gap(diagnosis)):
        yield from _labelled("Next", gap.next_step, most=3)
    elif file_noun(diagnosis) and not diagnosis.slo_p99:
        yield from _labelled("Next", "do users suffer? latdoctor diagnose --server URL --slo LIMIT", most=1)
    elif any(reason.code == ReasonCode.NO_SLO for reason in reasons):
        yield from _labelled("Next", "add --slo LIMIT, the P99 that users may expect, for example 500ms", most=1)
    elif diagnosis.next_looks:
        look = diagnosis.next_looks[0]
        yield from _labelled("Next", f"latdoctor diagnose {_option(look.ask)}   ({_noun(look)})", most=1)


def _largest_gap(diagnosis: Diagnosis) -> Gap | None:
    """What a file does not show although it should, where that hides most of it."""
    curable = [gap for gap in diagnosis.gaps if gap.next_step and len(gap.signals) >= _MANY_SIGNALS]
    return max(curable, key=lambda gap: len(gap.signals), default=None)


def _noun(look: NextSource) -> str:
    return diagnosis_text.SOURCE_NOUNS.get(look.source, look.source)


def _option(ask: str) -> str:
    """`--server URL` of `--server URL (or --metrics FILE)`."""
    return ask.partition(" (")[0]


def _changes(diagnosis: Diagnosis) -> Iterator[Line]:
    """What changed shortly before, at most two."""
    for line in time_scope.change_lines(diagnosis)[:2]:
        for number, one in enumerate(sentence_lines(line, " ", "   ", 2)):
            yield Line(one, rank=Rank.CHANGE, continued=number > 0)


def _zones(diagnosis: Diagnosis) -> Iterator[Line]:
    """The logs whose times may be off by a time zone, so that the order of events may be wrong."""
    for gap in (one for one in diagnosis.gaps if one.code == GapCode.UNZONED):
        for number, line in enumerate(sentence_lines(f"In doubt  {gap.reason}", " ", "   ", 2)):
            yield Line(line, rank=Rank.NOT_SEEN, continued=number > 0)


def _not_seen(diagnosis: Diagnosis) -> Iterator[Line]:
    """The kinds of sources that would change this answer most; without a cause "Next" names the one to read."""
    if not diagnosis.answer.causes:
        return
    wanted = [f"{_noun(look)} ({_option(look.ask)})" for look in diagnosis.next_looks]
    impact = next((cause.impact for cause in diagnosis.causes if cause.named), None)
    if impact == UserImpact.NOT_MEASURED and not diagnosis.slo_p99:
        wanted = ["user impact (--server URL --slo LIMIT)"]
    if wanted:
        both = f" Not seen  {'; '.join(wanted[:2])}"
        yield Line(both if len(both) <= WIDTH else f" Not seen  {wanted[0]}", rank=Rank.NOT_SEEN)


def _more(diagnosis: Diagnosis) -> Iterator[Line]:
    explain = f" · latdoctor explain {diagnosis.answer.causes[0]}" if diagnosis.answer.causes else ""
    yield Line(f" -v evidence in full{explain}", "dim", Rank.MORE)
