"""MCP servers as tools: their configuration, their life, and their calls."""
