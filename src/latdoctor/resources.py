"""Where the shipped rules, playbooks, SOPs and alert rules lie: inside the wheel, or beside `src/` in a checkout."""

from __future__ import annotations

from pathlib import Path

from latdoctor.errors import OperationError

_PACKAGE = Path(__file__).parent


def folder(name: str) -> Path:
    """The folder `rules`, `playbooks`, `sops` or `alerts` as shipped.

    Raises OperationError where the installation holds neither form.
    """
    for candidate in (_PACKAGE / "_data" / name, _PACKAGE.parent.parent / name):
        if candidate.is_dir():
            return candidate
    raise OperationError(f"the shipped {name}/ folder is missing", where=str(_PACKAGE), next_step="reinstall latdoctor")
