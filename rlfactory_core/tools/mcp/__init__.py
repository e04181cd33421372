"""MCP servers as tools: read the configuration, keep the servers running, call them (`source.McpSource`)."""
