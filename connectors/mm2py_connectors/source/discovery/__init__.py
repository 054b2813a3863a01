"""Which topics a flow copies, where each partition starts, and what is refused."""
