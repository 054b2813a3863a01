"""What ``/v1`` tells beyond the status: pages of topics and partitions, settings with their origins, quarantine."""
