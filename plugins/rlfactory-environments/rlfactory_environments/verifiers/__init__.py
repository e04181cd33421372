"""Environments of the library verifiers: its own rollout plays them, and asks the model at our endpoint."""
