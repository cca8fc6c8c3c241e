"""From evidence to a ranked, explained diagnosis."""
