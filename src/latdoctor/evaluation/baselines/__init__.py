"""Baselines: published methods that rank the metrics behind an incident, on the same recordings as latdoctor.

`methods` has the methods: each is a pure function of the metric columns before and during the incident. `inputs` reads
those columns from a recorded run. `metric_to_cause` maps metrics to causes, fitted on training runs; `adapter` runs a
baseline on recorded runs.
"""
