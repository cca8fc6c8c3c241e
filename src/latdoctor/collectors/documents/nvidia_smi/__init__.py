"""What all outputs of nvidia-smi have in common: how values are written, the names of fields, and their evidence."""
