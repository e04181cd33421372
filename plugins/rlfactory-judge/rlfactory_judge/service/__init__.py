"""Asking the judge: which endpoint, how often, at what cost, and what is remembered."""
