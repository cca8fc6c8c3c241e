"""Faults that are injected for real: addressable, removable, and gone by themselves after their lifetime."""
