"""A planned cutover, its rollback and its end: what ``mm2py dr cutover``, ``rollback`` and ``complete`` do to clusters.

``actions.py`` does the steps of the table of states (``mm2py/dr/states.py``), each by a module of its own:
``run_fence`` stops producers, ``drained`` waits for the copies, ``final_groups`` moves groups, ``turning_round`` turns
the flow. ``preview.py`` says before anything is done what would be, with positions.

MirrorMaker 2 has no cutover: its users follow a runbook by hand.
"""
