"""Models behind a server, spoken to in messages."""
