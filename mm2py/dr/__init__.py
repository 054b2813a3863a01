"""Disaster recovery of a pair of clusters: cut over, fail over, fail back, undo.

``states.py`` is the machine of states, ``journal.py`` its memory on both clusters, ``readiness.py`` what ``mm2py dr
check`` answers. Decision 30 (docs/decisions) says why it is like this.

MirrorMaker 2 has nothing like it: its users follow a runbook by hand.
"""
