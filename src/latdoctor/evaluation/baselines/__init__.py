"""Peers: published ways to find the metric behind an incident, run on the same recordings as latdoctor.

Each is a pure function of the columns of a recording: the seconds before the incident, and those in it. What it gives
is a score for every metric; `mapping` makes causes of metrics, fitted on training runs, and `running` runs it.
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
    BaselineMethod("random", "Random order", "a floor: metrics in random order", random_order),
    BaselineMethod("n-sigma", "N-sigma", "largest z in the incident, mean and standard deviation of before", n_sigma),
    BaselineMethod("max-abs-z", "max |z|", "the same to either side, so that drops count too", max_z),
    BaselineMethod("baro", "BARO scorer", "RobustScorer of Pham et al. (FSE 2024): median and IQR of before", baro),
    BaselineMethod(
        "ranked-correlation",
        "Ranked correlation",
        "Spearman's ρ with latency, as in the PetShop repository (CLeaR 2024)",
        ranked_correlation,
    ),
)
