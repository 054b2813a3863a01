"""One connection to one broker: the socket, Kafka's frames, versions, fetch sessions and quotas."""
