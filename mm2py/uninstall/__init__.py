"""What a flow that is gone leaves behind on its clusters, and its removal. MirrorMaker 2 has nothing of the kind."""
