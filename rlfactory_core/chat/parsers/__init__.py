"""Parsers of assistant turns, one module for each way to write calls.

The names here are for a parser of your own.
"""

from rlfactory_core.chat.parsers.json_calls import parse_hermes, read_object
from rlfactory_core.chat.parsers.turn import MalformedError, Parser, Syntax, TurnReader, between

__all__ = ["MalformedError", "Parser", "Syntax", "TurnReader", "between", "parse_hermes", "read_object"]
