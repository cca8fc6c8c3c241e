"""What was found and no named cause explains."""

from __future__ import annotations

from collections.abc import Mapping

from latdoctor.diagnosis.result import Diagnosis, RuledOut


def unexplained(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What fired and what no named cause expects. Where none is named: what would expect it, but is ruled out."""
    answer, says = diagnosis.answer, {check.id: check.says for check in diagnosis.checks}
    ruled_out = () if answer.causes else answer.ruled_out
    unfit = {name: row for row in reversed(ruled_out) for name in row.explains}
    return tuple(f"{says[name]}{_unfit(unfit[name], says) if name in unfit else ''}" for name in answer.unexplained)


def _unfit(ruled_out: RuledOut, says: Mapping[str, str]) -> str:
    return f" (fits {ruled_out.cause}, which is ruled out: {'; '.join(says[name] for name in ruled_out.by)})"
