"""Telemetry of GPU machines that is made and not recorded: what a user would bring of an incident, from seeded numbers.

Pure but for `writing`: the same cause, seed and severity give the same bytes. Everything is marked as generated, and
what is wrong stands nowhere in it: `truth` is written apart, where asked for.
"""
