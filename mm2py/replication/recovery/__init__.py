"""What a previous incarnation had written behind its last stored position."""
