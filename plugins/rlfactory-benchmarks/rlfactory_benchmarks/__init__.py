"""Public benchmarks of tool use as tasks, whose data, simulators and checkers are those of their own packages.

Each benchmark has a folder and an entry point of its own, so that a run imports only what it needs.
"""
