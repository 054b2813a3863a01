"""The REST interface of a worker. Empty until the control API is built; the package holds its name."""
