"""What ``/v1`` shows besides the status: pages of topics and partitions, settings with their origins, quarantine."""
