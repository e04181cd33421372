"""The command line, a cache that is thrown away, and a tiny model."""

from command_fixtures import install, rlfactory
from run_fixtures import cache, cli, tiny_model

__all__ = ["cache", "cli", "install", "rlfactory", "tiny_model"]
