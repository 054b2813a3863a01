"""Copying one partition: decisions (pure) and the asyncio shell that carries them out."""
