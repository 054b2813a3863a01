"""The control log: the topic on the target through which the workers of a group agree."""
