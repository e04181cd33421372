"""Fixtures that several test files share."""

from command_fixtures import install, rlfactory

__all__ = ["install", "rlfactory"]
