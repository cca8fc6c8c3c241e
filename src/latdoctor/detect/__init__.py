"""Statistics over evidence: series and distributions become derived readings."""
