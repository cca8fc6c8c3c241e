"""The reference server beside LitServe and BentoML: same model, same machine, same open-loop load.

    python -m bench.peers --quick            # five minutes, a first impression
    python -m bench.peers --output json      # the whole comparison, about half an hour

README.md describes what is compared and how.
"""
