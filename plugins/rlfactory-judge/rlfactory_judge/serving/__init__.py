"""Serve the judge's model: the servers' processes, their supervisor, and the file with their addresses."""
