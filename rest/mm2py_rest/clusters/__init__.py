"""What a REST process asks of the clusters, once for all requests that want to know it."""
