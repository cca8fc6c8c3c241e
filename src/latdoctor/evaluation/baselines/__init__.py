"""Baselines: published methods that rank the metrics behind an incident, on the same recordings as latdoctor.

Each is a pure function of the metric columns before and during the incident and returns a score per metric.
`metric_to_cause` maps metrics to causes, fitted on training runs; `adapter` runs a baseline on recorded runs.
"""

from __future__ import annotations

from latdoctor.evaluation.baselines.methods import (
    BaselineMethod,
    baro,
    max_z,
    n_sigma,
    random_order,
    ranked_correlation,
)

BASELINES = (
    BaselineMethod("random", "Random order", "metrics in random order: the lower bound", random_order),
    BaselineMethod(
        "n-sigma", "N-sigma", "largest z-score in the incident, from mean and standard deviation before", n_sigma
    ),
    BaselineMethod("max-abs-z", "max |z|", "largest absolute z-score, so that drops count too", max_z),
    BaselineMethod("baro", "BARO scorer", "RobustScorer of Pham et al. (FSE 2024): median and IQR before", baro),
    BaselineMethod(
        "ranked-correlation",
        "Ranked correlation",
        "Spearman's ρ with latency, as in the PetShop repository (CLeaR 2024)",
        ranked_correlation,
    ),
)
