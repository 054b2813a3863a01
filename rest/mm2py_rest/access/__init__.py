"""Who may ask REST for what: listeners and their limits, users and roles, and what stands before the routes."""
