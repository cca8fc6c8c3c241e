"""Who enters the contest beside the diagnosis: an explicit list. A new method is a module and a line here."""

from __future__ import annotations

from latdoctor.trials.contest import Contestant
from latdoctor.trials.peers import PEERS
from latdoctor.trials.peers.contestants import GIVEN, contestant

ENTRANTS: tuple[Contestant, ...] = tuple(contestant(peer, metrics) for metrics in GIVEN for peer in PEERS)
