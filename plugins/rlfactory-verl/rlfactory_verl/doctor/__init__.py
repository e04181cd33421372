"""``rlfactory doctor --engine verl``: the machine, what is installed, and what is missing."""
