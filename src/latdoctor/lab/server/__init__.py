"""The reference inference server: an intent model behind a dynamic batcher, with every knob that playbooks change."""
