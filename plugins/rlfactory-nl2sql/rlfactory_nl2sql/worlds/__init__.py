"""Generated worlds: small SQLite databases with questions, and the demonstrations and samples for a tiny model."""
