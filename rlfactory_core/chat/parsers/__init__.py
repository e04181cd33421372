"""Parsers for the text of each model family, one module for each call syntax.

The names here are for a parser of your own.
"""

from rlfactory_core.chat.parsers.hermes import parse_hermes
from rlfactory_core.chat.parsers.json_calls import read_object
from rlfactory_core.chat.parsers.turn import MalformedError, Parser, Syntax, Turn, between, read_turn

__all__ = ["MalformedError", "Parser", "Syntax", "Turn", "between", "parse_hermes", "read_object", "read_turn"]
