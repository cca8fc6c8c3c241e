"""Options of the commands that start real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Servers = Annotated[
    Path | None,
    typer.Option(
        "--servers", metavar="DIR", readable=False, help="The programs that start servers; else LATDOCTOR_REAL_SERVERS."
    ),
]
