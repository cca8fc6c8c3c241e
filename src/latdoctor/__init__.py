"""latdoctor: why an AI inference service has become slow, with the evidence for and against."""

__version__ = "0.1.0"
