"""The remediation benchmark: runs incidents that last until remediated, and measures the remediation."""
