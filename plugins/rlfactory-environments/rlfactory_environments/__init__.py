"""Environments that were not written for rlfactory, as tasks: OpenEnv servers, verifiers, Gymnasium and TextArena.

Each kind has a folder and an entry point of its own, so that a run imports only what it needs. `episodes` has what they
share.
"""
