"""`latdoctor trust`: permit a latdoctor.yaml of a working directory, as long as its content stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from latdoctor.cli.config_trust import TrustStore


def trust(
    path: Annotated[
        Path | None, typer.Argument(metavar="[PATH]", help="The file, or its folder (default: ./latdoctor.yaml).")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the trusted files.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Trust the file no longer.")] = False,
) -> None:
    """Trust the latdoctor.yaml of a working directory.

    A latdoctor.yaml may come with a cloned repository. Where it contacts other machines, reads credentials or files
    outside its folder, permits changes or names receivers, or where other users can write it, it is used only after
    this command, which prints what the file permits. It asks no question: running it is the consent. A changed file
    must be trusted again. ~/.config/latdoctor/latdoctor.yaml is the user's own and needs no trust.

    Exit codes: 0 trusted, removed or listed · 2 usage, or an invalid file.
    """
    from latdoctor.cli.config_file import trust_store

    store = trust_store()
    if list_:
        _list(store)
    elif remove:
        _remove(_place(path), store)
    else:
        _trust(_place(path), store)


def _place(path: Path | None) -> Path:
    """The absolute path of the file as the commands know it in its folder. Raises UsageError for another name."""
    from latdoctor.cli.config_file import FILE
    from latdoctor.errors import UsageError

    found = path or Path()
    found = found / FILE if found.is_dir() else found
    if found.name != FILE:
        raise UsageError(f"is not named {FILE}", where=str(found), next_step="name that file, or its folder")
    return found.parent.resolve() / FILE


def _trust(place: Path, store: TrustStore) -> None:
    """Print what the file permits, then remember its content."""
    from latdoctor.cli.config_file import read_configuration
    from latdoctor.cli.config_trust import digest

    found = read_configuration(place, whole=True)
    typer.echo(_shown(place))
    lines = [f"may {line}" for line in found.grants.lines()] or ["reads only this machine's pages and files beside it"]
    for line in lines:
        typer.echo(f"  {line}")
    store.add(place, digest(found.raw))
    typer.echo(f"Trusted until it changes. Undo: latdoctor trust --remove {_shown(place)}")


def _remove(place: Path, store: TrustStore) -> None:
    removed = store.remove(place)
    typer.echo(f"{_shown(place)}: {'no longer trusted' if removed else 'was not trusted'}")


def _list(store: TrustStore) -> None:
    from latdoctor.cli.config_trust import TrustState, digest
    from latdoctor.regular_file import read_regular
    from latdoctor.strict_yaml import MAX_BYTES

    known = store.all()
    for path, sha256 in known.items():
        try:
            same = digest(read_regular(Path(path), MAX_BYTES)) == sha256
            state = TrustState.TRUSTED if same else TrustState.CHANGED
        except OSError:
            state = TrustState.MISSING
        typer.echo(f"{_shown(Path(path))}: {state}")
    if not known:
        typer.echo("no file is trusted")


def _shown(path: Path) -> str:
    from latdoctor.sanitize import clean

    return clean(str(path), 300)
