"""Where the copying of each partition stands, as it is stored on the target."""
