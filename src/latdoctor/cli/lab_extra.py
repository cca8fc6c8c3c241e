"""What the extra `lab` brings is looked for before anything of the laboratory is loaded."""

from __future__ import annotations

from collections.abc import Sequence

FOR_LOAD = ("aiohttp", "hdrh", "uvloop")  # all that the generator needs: it may run where no server does
_NEEDED = (*FOR_LOAD, "httptools", "starlette", "torch", "uvicorn")


def need_extra(names: Sequence[str] = _NEEDED) -> None:
    """Raises UsageError where one of these packages of the extra is missing."""
    from importlib.util import find_spec

    from latdoctor.errors import UsageError

    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise UsageError(f"the laboratory needs {', '.join(missing)}", next_step="pip install 'latdoctor[lab]'")
