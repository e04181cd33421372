"""Talking to a model with the tools of a task, turn by turn: `rlfactory play`."""
