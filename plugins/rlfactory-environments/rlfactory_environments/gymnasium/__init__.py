"""Gymnasium's environments and TextArena's games as text that a model reads and answers."""
