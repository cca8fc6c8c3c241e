"""Remediation: a playbook becomes a plan, the plan a run; the run verifies its changes or rolls them back."""
