"""Models as tools: one behind an endpoint, or an agent with tools of its own."""
