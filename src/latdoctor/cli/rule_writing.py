"""Writes alert rules into a folder, and never over what somebody changed there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from latdoctor.errors import OperationError, UsageError
from latdoctor.incident import alert_rules


def written(folder: Path, names: Sequence[str], p99: float | None, errors: float | None) -> tuple[Path, ...]:
    """The files that were written. Where none is named all are, those without an SLO as they are.

    Raises UsageError, before anything is written, for an unknown name or a file that differs; OperationError.
    """
    contents = {folder / f"{name}{alert_rules.SUFFIX}": _text(name, p99, errors, names) for name in names or _all()}
    for path, content in contents.items():
        if path.exists() and _read(path) != content:
            raise UsageError(
                "is there already, and differs", where=str(path), next_step="remove it, or write elsewhere"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise OperationError(
            f"the rules cannot be written: {error.strerror}", where=str(folder), next_step="write to another folder"
        ) from error
    return tuple(contents)


def _all() -> tuple[str, ...]:
    return tuple(alert_rules.files())


def _text(name: str, p99: float | None, errors: float | None, names: Sequence[str]) -> str:
    plain = alert_rules.text(name)
    return alert_rules.text(name, p99, errors) if names or alert_rules.has_slo(plain) else plain


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OperationError(f"it cannot be read: {error.strerror}", where=str(path), next_step="look there") from error
