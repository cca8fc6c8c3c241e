"""The reference server beside LitServe and BentoML: same model, same machine, same open-loop load.

    python -m bench.peers --quick            # five minutes, a first impression
    python -m bench.peers --output FILE      # the whole comparison, about half an hour

README.md in this folder says what is compared and how.
"""
