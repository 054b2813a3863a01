"""Who may ask REST for what: users and roles, and what stands before the routes."""
