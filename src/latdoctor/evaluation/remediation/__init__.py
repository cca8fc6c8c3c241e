"""The bench of remediation: plays incidents that stay, has an operator mend them, and measures what came of that."""
