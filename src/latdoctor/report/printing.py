"""What is printed so that it can be taken over as it is: JSON, and commands to be pasted."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

SCHEMA_VERSION = "1"


def print_json(value: dict[str, Any], console: Console) -> None:
    """`value` under the version of its format, indented."""
    raw = msgspec.json.encode({"schema_version": SCHEMA_VERSION, **value})
    console.file.write(msgspec.json.format(raw, indent=2).decode() + "\n")
    console.file.flush()  # that it cannot be written is told here, as rich does it for text


def print_whole(text: str, console: Console, style: str = "") -> None:
    """On one line however long it is: a command that is broken over two cannot be pasted."""
    console.print(Text(text, style=style), soft_wrap=True)
