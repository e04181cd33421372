"""The commands of rlfactory for authors of plugins."""
