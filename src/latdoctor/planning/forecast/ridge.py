"""Ridge regression of the deviation at the target on the features of an origin: one model for one horizon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latdoctor.planning.forecast.features import Features
from latdoctor.planning.forecast.rate_series import FloatArray, IntArray

_PENALTIES = (1e-1, 1.0, 10.0, 100.0, 1000.0)
_HELD_OUT = 0.2  # share of the fitted origins, the last ones, by which the penalty is chosen


@dataclass(frozen=True, slots=True, eq=False)
class RidgeModel:
    """Weights of the standardised features."""

    centre: FloatArray
    spread: FloatArray
    weights: FloatArray
    constant: float

    def predict(self, features: Features, origins: IntArray) -> FloatArray:
        scaled = (features.matrix[origins] - self.centre) / self.spread
        root = features.base[origins] + scaled @ self.weights + self.constant
        return np.square(np.maximum(root, 0.0))


def fit(features: Features, targets: FloatArray, origins: IntArray) -> RidgeModel:
    """Fit to the values `targets` of `origins`; the penalty is chosen by the last fifth of them."""
    cut = len(origins) - max(1, int(len(origins) * _HELD_OUT))
    late = origins[cut:]
    wanted = np.sqrt(targets) - features.base[origins]
    errors = []
    for penalty in _PENALTIES:
        model = _solve(features.matrix[origins[:cut]], wanted[:cut], penalty)
        errors.append(float(np.abs(model.predict(features, late) - targets[cut:]).mean()))
    return _solve(features.matrix[origins], wanted, _PENALTIES[int(np.argmin(errors))])


def _solve(matrix: FloatArray, wanted: FloatArray, penalty: float) -> RidgeModel:
    centre, spread = matrix.mean(axis=0), matrix.std(axis=0)
    spread = np.where(spread > 1e-12, spread, 1.0)
    scaled, constant = (matrix - centre) / spread, float(wanted.mean())
    normal = scaled.T @ scaled + penalty * np.eye(scaled.shape[1])
    weights = np.linalg.solve(normal, scaled.T @ (wanted - constant))
    return RidgeModel(centre, spread, weights, constant)
