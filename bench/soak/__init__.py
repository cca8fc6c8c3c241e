"""The soak: `__main__` runs it, `clients`, `knobs` and `drain` disturb the server, `verdict` judges the counts."""
