"""What a worker measures of itself, and how it hands that over to the process that serves ``/metrics``."""
