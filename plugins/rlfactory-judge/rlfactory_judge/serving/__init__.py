"""Serve the judge's model: the server's process and its supervisor."""
