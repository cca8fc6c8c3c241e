"""The history of a service before a run, from the samples that the journal has of an incident."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from latdoctor.evidence.model import Origin, Series
from latdoctor.incident import events
from latdoctor.incident.elapsed import ElapsedTimes
from latdoctor.incident.slo_samples import read_sample
from latdoctor.incident.timeline_model import SloSample
from latdoctor.journal.entry import JournalEntry, unix_seconds
from latdoctor.remediation.history import History, of_series

_LONGEST = 600.0  # seconds
_ALIKE = 1.2  # factor between the lengths of samples that are compared


def history_of_samples(entries: Iterable[JournalEntry], now: float) -> History:
    """The samples of the last ten minutes that are as long as most of them; `now` in unix seconds."""
    samples = list(_samples(entries, now))
    if not samples:
        return History()
    length = median(one.length for one in samples)
    alike = [one for one in samples if length / _ALIKE <= one.length <= length * _ALIKE]
    keys = {(signal, subject) for one in alike for subject, listed in one.values.items() for signal in listed}
    series = []
    for signal, subject in sorted(keys):
        points = [
            (unix_seconds(one.at), one.values[subject][signal])
            for one in alike
            if signal in one.values.get(subject, {})
        ]
        times, values = zip(*points, strict=True)
        series.append(Series(signal, subject, times, values, Origin("journal", events.SAMPLED)))
    return of_series(series, length, now, "samples of the incident")


def _samples(entries: Iterable[JournalEntry], now: float) -> list[SloSample]:
    """One of each moment: several incidents of a service share its samples."""
    clock = ElapsedTimes(0.0, {})
    found: dict[str, SloSample] = {}
    for entry in entries:
        if entry.kind == events.SAMPLED and 0 <= now - unix_seconds(entry.at) <= _LONGEST:
            sample = read_sample(entry, clock)
            if sample is not None and sample.length > 0:
                found[sample.at] = sample
    return list(found.values())
