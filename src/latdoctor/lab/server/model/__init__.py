"""The intent model. Loads torch: only the server's process imports this."""

from __future__ import annotations

from latdoctor.lab.server.model.encoder import FRAME_WIDTH, POSITIONS, VOCABULARY
from latdoctor.lab.server.model.intent import INTENTS, IntentModel, ModelInput, Predictions

__all__ = ["FRAME_WIDTH", "INTENTS", "POSITIONS", "VOCABULARY", "IntentModel", "ModelInput", "Predictions"]
