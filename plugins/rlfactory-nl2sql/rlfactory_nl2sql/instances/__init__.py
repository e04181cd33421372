"""Varied databases of the same schema, which reveal queries that are right by accident."""
