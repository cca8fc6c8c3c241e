"""One incident, from its alert to its post-mortem, as the journal tells it.

`events` are the bodies of its entries, `state` what they add up to, `joining` how commands find the incident that they
belong to. Everything else here is a function of the journal, and returns a document that `report` prints.
"""
