"""Playbooks of the tests, read as files are."""

from __future__ import annotations

from pathlib import Path

from latdoctor.remediation.playbook_library import Library, read_library

SCHEDULER = """
id: test.scheduler
title: Another scheduler
addresses: [app.batching.long-alone]
targets: [reference]
risk: low
disruption: none
explanation: it takes the scheduler that helps
effect: {description: P99 falls, measured_by: tests/remediation}
preconditions: [arrival.rate > 1/s]
guards: {max_targets: 1, cooldown: 10min, attempts: {count: 2, per: 24h}}
before: {window: 10s}
steps:
  - {id: scheduler, action: test.set, with: {scheduler: token-budget}, undo: restore}
settle: {until: queue.depth < 0.2 x before, at_most: 20s}
verify:
  load: arrival.rate within 20% of before
  succeed: [latency.p99 < 0.5 x before]
  mechanism: [batch-sizes-bimodal clear]
  abort: [error.ratio > 5%]
  hold: 10s
  within: 60s
"""
LANES = (
    SCHEDULER.replace("test.scheduler", "test.lanes")
    .replace("{scheduler: token-budget}", '{lanes: "true"}')
    .replace("id: scheduler", "id: lanes")
)
WHOLE = """
id: test.whole
title: Both
addresses: [app.batching.long-alone]
targets: [reference]
risk: low
disruption: none
explanation: it takes the scheduler that helps
effect: {description: P99 falls, measured_by: tests/remediation}
preconditions: [arrival.rate > 1/s]
steps:
  - {playbook: test.lanes}
  - {playbook: test.scheduler}
settle: {until: queue.depth < 0.2 x before, at_most: 20s}
verify:
  load: arrival.rate within 20% of before
  succeed: [latency.p99 < 0.5 x before]
  hold: 10s
  within: 60s
"""


def library(folder: Path, *texts: str) -> Library:
    """The playbooks in `texts`, written to `folder`."""
    folder.mkdir(exist_ok=True)
    for text in texts or (SCHEDULER, LANES, WHOLE):
        name = next(line for line in text.splitlines() if line.startswith("id: "))[4:]
        (folder / f"{name}.yaml").write_text(text)
    return read_library([folder])
