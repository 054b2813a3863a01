"""What a worker measures of itself, and the form in which the process that serves ``/metrics`` gets the numbers."""
