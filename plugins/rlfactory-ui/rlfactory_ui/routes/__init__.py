"""The pages, one module a group; each has ``ROUTES``."""
