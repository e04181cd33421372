"""Finding, loading and comparing plugins. Listing imports nothing of theirs; loading is by name, one at a time."""
