"""What was seen: the signal catalogue, the forms of evidence, conditions over it, bundles and baselines."""
