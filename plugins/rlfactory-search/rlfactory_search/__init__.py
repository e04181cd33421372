"""A task with a search tool, retrievers, and a retrieval server."""
