"""Mending: a playbook becomes a plan, a plan a run; a run verifies itself or takes itself back."""
