"""What a REST process knows of the clusters: one look for all requests, kept as long as somebody asks."""
