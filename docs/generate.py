"""Writes what the documentation says of the program, from the program.

Usage: python docs/generate.py  (writes commands.md, the schemas, signals.md and causes/ beside this file)
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import typer.main

from latdoctor.cli import config_file
from latdoctor.cli.main import app, main
from latdoctor.collectors.access_log import formats as access_formats
from latdoctor.collectors.access_log import record_formats
from latdoctor.collectors.access_log.formats import AccessLogFormat
from latdoctor.collectors.documents import formats as document_formats
from latdoctor.collectors.logs import engine_formats
from latdoctor.collectors.logs.line_kinds import LINE_KINDS
from latdoctor.diagnosis import rule_loader
from latdoctor.diagnosis.confusable_causes import confusable_pairs
from latdoctor.dialects import loader as dialects
from latdoctor.notify import webhook
from latdoctor.report import machine_formats, reference_pages
from latdoctor.report.forecast import forecast_schema

FOLDER = Path(__file__).parent
CAUSES = FOLDER / "causes"
Named = tuple[str, ...]


def write() -> None:
    """Writes every page, and takes away the page of a cause that is no more."""
    made = pages()
    for path in sorted(CAUSES.glob("*")):
        if f"{CAUSES.name}/{path.name}" not in made:
            path.unlink()
            print(f"removed {path}")
    CAUSES.mkdir(exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text)
        print(f"wrote {FOLDER / name}")


def pages() -> dict[str, str]:
    """The generated pages by file name."""
    causes = reference_pages.pages(rule_loader.shipped(), confusable_pairs())
    return {
        "commands.md": _commands_page(),
        "diagnosis.schema.json": json.dumps(machine_formats.diagnosis_schema(), indent=1) + "\n",
        "forecast.schema.json": json.dumps(forecast_schema(), indent=1) + "\n",
        "timeline.schema.json": json.dumps(machine_formats.timeline_schema(), indent=1) + "\n",
        "notification.schema.json": json.dumps(webhook.schema(), indent=1) + "\n",
        "signals.md": reference_pages.page(),
        "configuration.md": _configuration_page(),
        "inputs.md": _inputs_page(),
        "latdoctor.yaml.schema.json": json.dumps(config_file.schema(), indent=1) + "\n",
        **{f"{CAUSES.name}/{name}": text for name, text in causes.items()},
    }


def _inputs_page() -> str:
    requests = (*access_formats.FORMATS, *record_formats.RECORD_FORMATS)
    names = {one.title if isinstance(one, AccessLogFormat) else f"{one.program} (JSON)" for one in requests}
    sections = {
        "Captures": [
            "traces of PyTorch's profiler (JSON, also gzipped)",
            "Nsight Systems: `nsys export --type sqlite`, tables of `nsys stats`; not `.nsys-rep`",
            "TensorRT: logs of trtexec, its JSON exports of times, layers and profile",
            "PyTorch memory snapshots (`.pickle`) and `memory_stats()` as JSON",
        ],
        "Text, JSON and CSV of tools": sorted(f"{one.title} (`{one.name}`)" for one in document_formats.ALL),
        "Lines of engines in logs": sorted(one.title for one in engine_formats.formats()),
        "Other lines in logs": sorted(one.name.replace("-", " ") for one in LINE_KINDS),
        "Request logs": sorted(names),
        "Metrics pages": sorted(one.title for one in dialects.shipped()),
    }
    parts = [
        "# What is read",
        "`latdoctor diagnose FILE…` takes files of any kind together, folders, and `-` for standard input. Each\n"
        "file is recognised by its content; `-v` says as what. Several kinds in one file (a bug report, a pasted\n"
        "thread) are read part by part. Only a log that was searched whole clears a check: a kernel log Xids, the\n"
        "log of a program CUDA errors. The output of a filter (`grep`, `tail`, `--since`, where the paste shows it),\n"
        "a message that is broken over lines or cut at the end of the file, and a line that may report a fault in\n"
        "other words withhold that. An error in prose, configuration or a user's prompt is none.\n"
        "`docs/generate.py` writes this page; the cases of each format are in `tests/collectors/documents/cases/` by\n"
        "its name, those of log lines in `tests/collectors/logs/`.",
        *(f"## {heading}\n\n" + "\n".join(f"* {line}" for line in lines) for heading, lines in sections.items()),
        "## Refused\n\nA file of another kind is refused with what it looks like and what to pass instead: pictures,\n"
        "PDF, archives, core dumps, binary journals, recordings of perf, web pages, source code, JSON and tables of\n"
        "unknown fields.",
    ]
    return "\n\n".join(parts) + "\n"


def _configuration_page() -> str:
    parts = [
        "# Configuration",
        "latdoctor reads ./latdoctor.yaml, else ~/.config/latdoctor/latdoctor.yaml. `docs/generate.py`\n"
        "writes this page and [latdoctor.yaml.schema.json](latdoctor.yaml.schema.json)\n"
        "from the types in `cli/config_file.py`.",
        "## Trust",
        "A file in the working directory may have arrived with a cloned repository or an archive, so that its owner\n"
        "proves nothing. It is used without consent only where the user owns it, no other user can write it or its\n"
        "folder, and all it names is metrics pages and a Prometheus on loopback addresses, and files in its folder.\n"
        "A file that names another address, `admin`, `allow`, a credential file, a receiver or a file elsewhere, or\n"
        "whose Prometheus would be sent credentials of the environment, is refused (exit 2), with what it\n"
        "would do, until `latdoctor trust` has printed what it permits and remembered its content\n"
        "(SHA-256, in ~/.config/latdoctor/trusted.json). A changed file must be trusted again. The\n"
        "command asks no question, so that it works in CI: running it is the consent. `--list` and `--remove` show\n"
        "and withdraw it. ~/.config/latdoctor/latdoctor.yaml needs no trust; a warning appears where other users can\n"
        "write it.",
        "Credential files (`prometheus_auth`, `admin_token`, `url_file`, `key_file`) must be below the folder of the\n"
        "configuration or ~/.config/latdoctor, links resolved. They are small regular files, no pipes or devices; a\n"
        "warning appears where other users can read one. `admin_token` is sent to the `admin` addresses of its\n"
        "target, without any to its one server, and nowhere else.",
    ]
    definitions = config_file.schema()["$defs"]
    for heading, name in (("targets.NAME", "TargetConfig"), ("slo", "SloConfig"), ("notify.NAME", "ReceiverConfig")):
        rows = [
            f"| `{key}` | {value.get('description', '')} | {_example(value)} |"
            for key, value in definitions[name]["properties"].items()
        ]
        table = "\n".join(["| key | meaning | example |", "|---|---|---|", *rows])
        parts += [f"## {heading}", definitions[name]["description"], table]
    return "\n\n".join(parts) + "\n"


def _example(value: dict[str, Any]) -> str:
    return f"`{json.dumps(value['examples'][0])}`" if value.get("examples") else ""


def _commands_page() -> str:
    parts = [
        "# Commands",
        "What `latdoctor COMMAND --help` prints; `python docs/generate.py` writes this page.",
        "A result goes to stdout, progress and messages go to stderr.\n"
        "The answer as JSON (`diagnose -o json`) keeps to [diagnosis.schema.json](diagnosis.schema.json), a forecast\n"
        "(`forecast -o json`) to [forecast.schema.json](forecast.schema.json), a timeline\n"
        "(`timeline --format json`) to [timeline.schema.json](timeline.schema.json).",
    ]
    parts += [f"## latdoctor {' '.join(name)}\n\n```text\n{help_of(name)}```" for name, _ in commands()]
    return "\n\n".join(parts) + "\n"


def commands() -> Iterator[tuple[Named, Any]]:
    """Every command that does something, by its words, as typer has it."""
    yield from _below(typer.main.get_command(app), ())


def _below(command: Any, name: Named) -> Iterator[tuple[Named, Any]]:
    if not hasattr(command, "list_commands"):
        yield name, command
        return
    context = command.make_context(command.name, ["--help"], resilient_parsing=True)
    for word in command.list_commands(context):
        yield from _below(command.get_command(context, word), (*name, word))


def help_of(name: Named) -> str:
    """What `latdoctor NAME --help` prints at 80 columns."""
    out = io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS="80"),
        mock.patch("sys.argv", ["latdoctor", *name, "--help"]),
        contextlib.redirect_stdout(out),
        contextlib.suppress(SystemExit),
    ):
        main()
    return out.getvalue()


if __name__ == "__main__":
    write()
