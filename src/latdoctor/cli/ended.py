"""How runs ended is told; and that it could not be told changes nothing of how they ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from latdoctor.cli.saying import say
from latdoctor.cli.screen import notice_console, result_console
from latdoctor.errors import OperationError
from latdoctor.remedy.result import Result
from latdoctor.report import mending as shown


def tell_results(
    results: Sequence[Result],
    *,
    as_json: bool,
    untried: Sequence[str] = (),
    nothing: str = "",
    at_work: bool = False,
) -> None:
    """On stdout; on stderr where that cannot be written, for the exit code alone does not say which run it was.

    `at_work`: a result that is held is of a run that only has to be waited for.
    """
    try:
        shown.results(results, result_console(), as_json=as_json, untried=untried, nothing=nothing, at_work=at_work)
        sys.stdout.flush()
    except OperationError as error:
        say(f"latdoctor: {error}. How it ended:")
        shown.results(results, notice_console(), as_json=False, untried=untried, nothing=nothing, at_work=at_work)
