"""`latdoctor lab model`: the registry of model versions that the reference server loads from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="The registry of model versions for `lab serve`.", no_args_is_help=True)

Registry = Annotated[Path, typer.Argument(metavar="REGISTRY", help="The folder of the registry.")]
MAX_FILE_BYTES = 4 << 30


@app.command()
def add(
    registry: Registry,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The name of the new version.")],
    file: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A safetensors file; without it, weights are drawn.")
    ] = None,
    layers: Annotated[int, typer.Option("--layers", min=1, max=48, metavar="N", help="Layers of drawn weights.")] = 4,
    width: Annotated[int, typer.Option("--width", min=32, max=2048, metavar="N", help="Width of drawn weights.")] = 256,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="TYPE", help="Type of drawn weights: fp32 or bf16.")
    ] = "fp32",
) -> None:
    """Add a version to the registry.

    It is written with its SHA-256 and is never changed afterwards. Without --from, the weights of the reference network
    are drawn by the version's name; `v2+4` has four more layers.

    Exit codes: 0 added · 1 it cannot be written · 2 usage, or the version exists.
    """
    from latdoctor.cli.lab import need_extra
    from latdoctor.errors import OperationError, UsageError
    from latdoctor.lab.server.versions.model_registry import add_version
    from latdoctor.regular_file import read_regular

    need_extra()
    if file is None:
        weights = _drawn(version, layers, width, dtype)
    else:
        try:
            weights = read_regular(file, MAX_FILE_BYTES)
        except OSError as error:
            raise OperationError(f"it cannot be read: {error.strerror}", where=str(file)) from error
        if len(weights) > MAX_FILE_BYTES:
            raise UsageError(f"it is larger than {MAX_FILE_BYTES} bytes", where=str(file))
    manifest = add_version(registry, version, weights)
    typer.echo(f"added {manifest.version}: {manifest.size} bytes, SHA-256 {manifest.sha256}")


def _drawn(version: str, layers: int, width: int, dtype: str) -> bytes:
    from latdoctor.errors import UsageError

    if dtype not in ("fp32", "bf16") or width % 4:
        what = f"--dtype is {dtype!r}" if width % 4 == 0 else f"--width is {width}, not a multiple of 4"
        raise UsageError(what, next_step="--dtype fp32 or bf16, --width 256")
    import torch

    from latdoctor.lab.server.intent_model import INTENTS
    from latdoctor.lab.server.network import POSITIONS
    from latdoctor.lab.server.versions.network_weights import drawn_weights

    of = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    return drawn_weights(version, layers=layers, width=width, intents=len(INTENTS), positions=POSITIONS, dtype=of)


@app.command("list")
def list_(registry: Registry) -> None:
    """List the versions of the registry, the newest first.

    Of a version that cannot be loaded, the code says why. The weights are hashed when they are loaded, not here.

    Exit codes: 0 listed · 1 the folder cannot be read · 2 usage.
    """
    from rich.table import Table

    from latdoctor.cli.console import result_console
    from latdoctor.cli.lab import need_extra
    from latdoctor.lab.server.versions.model_registry import registered_versions

    need_extra()
    table = Table("version", "added (UTC)", "bytes", "SHA-256", "format", "state", box=None, pad_edge=False)
    for one in registered_versions(registry):
        manifest = one.manifest
        about = (
            (f"{manifest.created:%Y-%m-%d %H:%M}", str(manifest.size), manifest.sha256[:12], manifest.format)
            if manifest
            else ("", "", "", "")
        )
        table.add_row(one.version, *about, one.refused or "ready to load")
    result_console().print(table)
