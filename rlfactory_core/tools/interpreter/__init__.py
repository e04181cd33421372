"""Python code that the model writes, run in a process of its own for each trajectory."""
