"""A worker process: which flows it runs, and how it starts and stops them."""
