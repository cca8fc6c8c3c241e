"""What a change of rules does to recorded incidents: reading both, diagnosing by both, printing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import typer
from rich.padding import Padding
from rich.text import Text

from latdoctor.cli.answering import rule_set, stamp, the_case
from latdoctor.cli.screen import result_console, telling
from latdoctor.diagnosis import rule_files
from latdoctor.diagnosis.contrast import contrast
from latdoctor.diagnosis.diagnose import diagnose
from latdoctor.diagnosis.rule_changes import IncidentChange, RulesDifference, rule_changes
from latdoctor.diagnosis.rules import RuleSet
from latdoctor.errors import BundleError, DefinitionError
from latdoctor.evidence.bundle_files import opened
from latdoctor.report.contrast import of_rules
from latdoctor.text import clean

SHIPPED = "the shipped rules"
_PACKED = ".tar.zst"
_WHOLE = (
    "a folder that has a shipped cause stands for all shipped rules: copy the others into it, too, or change what you "
    "want changed by an overlay (docs/contributing.md)"
)


def compared(folders: Sequence[Path], bundles: Sequence[Path]) -> RulesDifference:
    """The rules of the last of `folders` against those of the first, or against the shipped ones where it is alone.

    Raises DefinitionError, BundleError.
    """
    old_name, old = _rules(folders[0]) if len(folders) > 1 else (SHIPPED, rule_set(()))
    new_name, new = _rules(folders[-1])
    paths = [path for given in bundles for path in _bundles(given)]
    incidents = []
    with telling() as tell:
        for number, path in enumerate(paths, start=1):
            tell(f"incident {number} of {len(paths)}: {path}")
            incidents.append(_incident(path, old, new))
    return RulesDifference(
        _described(old_name, old), _described(new_name, new), rule_changes(old, new), tuple(incidents)
    )


def _rules(folder: Path) -> tuple[str, RuleSet]:
    """What `folder` means, in words, and its rules: with the shipped ones unless it stands in their place.

    Raises DefinitionError.
    """
    if _stands_for_shipped(folder):
        try:
            return str(folder), rule_files.read([folder])
        except DefinitionError as error:
            raise DefinitionError(error.problems, next_step=_WHOLE) from error
    return f"{SHIPPED} and {folder}", rule_set([folder])


def _stands_for_shipped(folder: Path) -> bool:
    return any(path.stem in rule_set(()).cause for path in (folder / "causes").glob("*.yaml"))


def _described(name: str, rules: RuleSet) -> str:
    return f"{clean(name)} ({len(rules.causes)} causes, {len(rules.findings)} findings)"


def _bundles(given: Path) -> Iterator[Path]:
    """`given` itself, or the bundles that lie in it. Raises BundleError where there is none."""
    if not given.is_dir() or (given / "manifest.json").exists():
        yield given
        return
    try:
        inner = sorted(given.iterdir())
    except OSError as error:
        raise BundleError(f"cannot be read: {error.strerror}", where=str(given)) from error
    found = [path for path in inner if path.name.endswith(_PACKED) or (path / "manifest.json").exists()]
    if not found:
        raise BundleError(
            "holds no bundle",
            where=str(given),
            next_step="name a bundle, or a folder of what `latdoctor collect` wrote",
        )
    yield from found


def _incident(path: Path, old: RuleSet, new: RuleSet) -> IncidentChange:
    with opened(path) as bundle:
        case = the_case(bundle)
    return IncidentChange(clean(str(path)), contrast(*(diagnose(case, rules, stamp()) for rules in (old, new))))


def print_difference(difference: RulesDifference, new: Path, *, as_json: bool, every: bool) -> None:
    """The document, or lines of text and what to do next with `new`, the folder of the new rules."""
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(difference), indent=2).decode())
        return
    console = result_console()
    for indent, line in of_rules(difference, every=every):
        console.print(Padding(Text(line), (0, 0, 0, indent), expand=False) if line else "")
    if not difference.incidents:
        console.print("\nNext: name recorded incidents, to see what becomes of their answers: --bundles PATH")
    else:
        console.print(Text(f"Next: {_next(new)}"), soft_wrap=True)


def _next(new: Path) -> str:
    if _stands_for_shipped(new):
        return "latdoctor rules test, once they are in place of the shipped ones"
    if clean(str(new)) != str(new):  # a name that cannot be shown can be typed by nobody
        return "latdoctor rules test --rules, and that folder"
    return f"latdoctor rules test --rules {shlex.quote(str(new))}"
