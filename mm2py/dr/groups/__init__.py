"""Consumer groups that move from one cluster to the other: what would be committed there, what waits, what may not.

``judgement.py`` decides, ``group_inquiry.py`` asks both clusters, ``group_commits.py`` commits all partitions of a
group or none, ``moving.py`` joins them for one group and for all groups of a flow.

Counterpart: the group offset sync of MirrorMaker 2, which commits now and then what its checkpoints say.
"""
