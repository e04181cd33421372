"""MCP servers that the processes of one machine share: a daemon owns them, clients speak to it over a Unix socket."""
