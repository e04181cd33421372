"""Serve the judge's model: the server's process, its supervisor, and the file with its address."""
