"""Finds, loads and compares plugins. Listing them imports none; loading is by name, one at a time."""
