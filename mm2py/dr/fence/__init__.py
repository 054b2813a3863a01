"""The fence of producers: chosen topics of the source take no record of applications any more, until it is lifted.

``facts`` asks the source, ``plan`` decides what to change and what the fence cannot prove, ``raising`` stores that on
both clusters and does it, ``stillness`` judges whether nothing was written since, ``lifting`` gives back what was
changed. MirrorMaker 2 has no fence: its runbooks say "stop the producers".
"""
