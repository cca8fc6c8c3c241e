"""Synthetic telemetry of GPU machines: the evidence of an incident, from seeded random numbers.

The same cause, seed and severity give the same bytes. Everything is marked as generated and does not contain the ground
truth, which is written to a separate file.
"""
