"""The control file of a running load: read again each second; what it says is what applies.

A file and not a port: it needs no token, only who may write it changes the load, and a script changes it as easily as
an editor. It states the whole deviation from the plan, so an empty file is the plan again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latdoctor.load.live_changes import Adjustment


class ControlFile:
    """The file `path`, and where its changes go."""

    def __init__(self, path: Path, adjust: Callable[[Adjustment], None]) -> None:
        from latdoctor.load.live_changes import Adjustment

        self._path, self._adjust = path, adjust
        self._content = b""
        self._reported = ""
        self._current = Adjustment()

    def follow(self) -> None:
        """Pass on what changed since the last call. A wrong file changes nothing and is reported once."""
        from latdoctor.cli.console import notice
        from latdoctor.errors import LatdoctorError

        try:
            if not self._path.exists():
                return
            self._take()
        except LatdoctorError as error:
            if str(error) != self._reported:
                notice(f"{error}; the load goes on as before")
            self._reported = str(error)

    def _take(self) -> None:
        """Raises DefinitionError, UsageError."""
        from latdoctor import strict_yaml
        from latdoctor.cli.console import notice

        content = strict_yaml.contents(self._path)
        if content == self._content:
            return
        self._content = content
        adjustment = read_adjustment(content, str(self._path))
        if adjustment != self._current:
            self._adjust(adjustment)
            self._current = adjustment
            notice(f"load changed: {adjustment_text(adjustment)}")


def read_adjustment(content: bytes, name: str) -> Adjustment:
    """The adjustment in the YAML text `content`. Raises DefinitionError."""
    import msgspec

    from latdoctor import strict_yaml
    from latdoctor.errors import DefinitionError, Problem
    from latdoctor.load.live_changes import Adjustment

    lines = (line.partition(b"#")[0].strip() for line in content.splitlines())
    if not any(lines):
        return Adjustment()
    node = strict_yaml.parse(content, name)
    try:
        return msgspec.convert(node.plain(), Adjustment, strict=False)
    except msgspec.ValidationError as error:
        raise DefinitionError([Problem(node.where, str(error))]) from error


def adjustment_text(adjustment: Adjustment) -> str:
    """Such as `rate ×1.5, 40 users, long_share 40%`; `as planned` for none."""
    from msgspec import structs

    parts = [f"rate ×{adjustment.rate:g}"] if adjustment.rate != 1 else []
    if adjustment.users is not None:
        parts.append(f"{adjustment.users} users")
    parts += [f"{name} {share:.0%}" for name, share in structs.asdict(adjustment.mix).items() if share is not None]
    return ", ".join(parts) or "as planned"
