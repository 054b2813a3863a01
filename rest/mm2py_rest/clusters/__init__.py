"""What a REST process asks the clusters, once for all requests that need the answer."""
