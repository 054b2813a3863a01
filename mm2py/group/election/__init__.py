"""Which worker of a group may claim leadership: by the control log, or by ZooKeeper."""
