"""A plugin that works."""
