"""The model families: each file has the chat formats and the parsers of one, or of those that write calls alike."""
