"""Access to REST: listeners and their limits, users and roles, and the checks before the routes."""
