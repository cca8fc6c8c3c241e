"""The benchmark on real servers: recordings of their incidents, and the scores of the diagnoses."""
