"""How long reading a turn takes, on plain and on hostile text, beside other projects' parsers.

    python -m pip install renderers qwen-agent json5     # the peers, optional
    python benchmarks/parsers.py                         # writes benchmarks/results/parsers.md

CPU time of one thread, the best of several tries, without garbage collection (as `timeit` does). Sizes are in
characters.
"""

from __future__ import annotations

import gc
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import describe, publish, sized

from rlfactory_core.types import ToolSpec

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from parser_texts import SYNTAXES, Syntax, hostile  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "parsers.md"
SMALL, LARGE = sized((16_384, 163_840), (512, 2048))
GOAL_MS, GOAL_RATIO = 1.0, 12.0
SLOW_MS = 100.0  # a peer that is slower is not tried on the longer text
TOOLS = (ToolSpec("echo", "", {"type": "object", "properties": {"text": {"type": "string"}}}),)

Parse = Callable[[str], Any]


class Pieces:
    """A tokenizer that costs little: special tokens, and four characters a token for the rest."""

    def __init__(self, special: Sequence[str]) -> None:
        self.ids = {text: index for index, text in enumerate(special)}
        self.texts = list(special)
        self._cut = re.compile("(" + "|".join(map(re.escape, special)) + ")" if special else "(?!)")

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        found: list[int] = []
        for part in self._cut.split(text):
            whole = part in self.ids
            for piece in [part] if whole else [part[i : i + 4] for i in range(0, len(part), 4)]:
                if piece not in self.ids:
                    self.ids[piece] = len(self.texts)
                    self.texts.append(piece)
                found.append(self.ids[piece])
        return found

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join([self.texts[index] for index in ids])

    def convert_tokens_to_ids(self, token: str) -> int | None:
        return self.ids.get(token)


# renderers' function for a family, and the token behind each of its arguments.
TAGGED = {"tool_call_id": "<tool_call>", "tool_call_end_id": "</tool_call>"}
THINKING = {"think_id": "<think>", "think_end_id": "</think>"}
RENDERERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "hermes": ("parse_qwen3", TAGGED),
    "qwen3_coder": ("parse_qwen35", {**TAGGED, **THINKING}),
    "llama3": ("parse_llama_3", {}),
    "deepseek": (
        "parse_deepseek_v3",
        {
            "tool_calls_begin_id": "<｜tool▁calls▁begin｜>",  # noqa: RUF001
            "tool_calls_end_id": "<｜tool▁calls▁end｜>",  # noqa: RUF001
            "tool_call_begin_id": "<｜tool▁call▁begin｜>",  # noqa: RUF001
            "tool_call_end_id": "<｜tool▁call▁end｜>",  # noqa: RUF001
            "tool_sep_id": "<｜tool▁sep｜>",  # noqa: RUF001
        },
    ),
    "glm": (
        "parse_glm",
        {
            **TAGGED,
            **THINKING,
            "arg_key_id": "<arg_key>",
            "arg_key_end_id": "</arg_key>",
            "arg_value_id": "<arg_value>",
            "arg_value_end_id": "</arg_value>",
        },
    ),
    "harmony": (
        "parse_gpt_oss",
        {f"{name}_id": f"<|{name}|>" for name in ("return", "call", "start", "end", "channel", "message", "constrain")},
    ),
}


def renderers_parse(family: str, text: str) -> Parse | None:
    """The peer's parser on the ids of ``text``, which are made outside of the time that counts."""
    if family not in RENDERERS:
        return None
    try:
        from renderers import parsing
    except ImportError:
        return None
    name, tokens = RENDERERS[family]
    if family == "deepseek":  # it reads calls only between these, and Llama's only without
        text = f"{tokens['tool_calls_begin_id']}{text}{tokens['tool_calls_end_id']}"
    text = text.removeprefix("<|python_tag|>")
    tokenizer = Pieces(tuple(tokens.values()))
    ids = tokenizer.encode(text)
    given: dict[str, Any] = {argument: tokenizer.ids[token] for argument, token in tokens.items()}
    if family != "harmony":
        given["stop_ids"] = set()
    return lambda _: getattr(parsing, name)(tokenizer, ids, **given)


def qwen_agent_parse(family: str, text: str) -> Parse | None:
    if family != "hermes":
        return None
    try:
        from qwen_agent.llm.fncall_prompts.nous_fncall_prompt import NousFnCallPrompt
        from qwen_agent.llm.schema import ContentItem, Message
    except ImportError:
        return None
    logging.disable(logging.WARNING)
    prompt = NousFnCallPrompt()
    return lambda text: prompt.postprocess_fncall_messages([Message("assistant", [ContentItem(text=text)])])


PEERS = {"renderers": renderers_parse, "qwen-agent": qwen_agent_parse}


def best_ms(parse: Parse, text: str, tries: int) -> float:
    gc.disable()
    fastest = math.inf
    for _ in range(tries):
        started = time.thread_time()
        parse(text)
        fastest = min(fastest, time.thread_time() - started)
    gc.enable()
    return fastest * 1e3


def ours(syntax: Syntax, small: str, large: str) -> tuple[float, float]:
    """Milliseconds for the small text, and how many times that the large one takes."""

    def parse(text: str) -> object:
        return syntax.parse(text, TOOLS)

    base, longer = best_ms(parse, small, 15), best_ms(parse, large, 15)
    if longer > base * GOAL_RATIO:  # other work on the machine, or ours: more tries tell
        base, longer = min(base, best_ms(parse, small, 60)), min(longer, best_ms(parse, large, 60))
    return base, longer / base


def theirs(make: Callable[[str, str], Parse | None], family: str, small: str, large: str) -> str:
    """A cell: ``0.25 (x 10)``, or the error that came out."""
    try:
        parse, longer = make(family, small), make(family, large)
        if parse is None or longer is None:
            return "-"
        base = best_ms(parse, small, 5)
        return f"{base:,.0f}" if base > SLOW_MS else f"{base:.2f} (x {best_ms(longer, large, 2) / base:.0f})"
    except Exception as error:  # noqa: BLE001 - whatever a peer raises on a text is its result
        return f"raises {type(error).__name__}"


def installed(name: str) -> bool:
    return PEERS[name]("hermes", "") is not None


def main() -> None:
    peers = [name for name in PEERS if installed(name)]
    summary = [
        "| family | worst ms for 16 kB | on | worst ratio | on | goals met on |",
        "|---|---|---|---|---|---|",
    ]
    tables: list[str] = []
    for family, syntax in SYNTAXES.items():
        shown = [name for name in peers if PEERS[name](family, "") is not None]
        tables += [
            "",
            f"## {family}",
            "",
            " | ".join(["| text", "ms", "ratio", *shown]) + " |",
            "|---|---|---|" + "---|" * len(shown),
        ]
        rows: list[tuple[str, float, float]] = []
        for (name, small), (_, large) in zip(hostile(syntax, SMALL), hostile(syntax, LARGE), strict=True):
            base, ratio = ours(syntax, small, large)
            rows.append((name, base, ratio))
            cells = [theirs(PEERS[peer], family, small, large) for peer in shown]
            label = name.replace("|", "\\|")
            tables.append(" | ".join([f"| {label}", f"{base:.3f}", f"{ratio:.1f}", *cells]) + " |")
        slowest, steepest = max(rows, key=lambda row: row[1]), max(rows, key=lambda row: row[2])
        met = sum(base <= GOAL_MS and ratio <= GOAL_RATIO for _, base, ratio in rows)
        cells = [
            family,
            f"{slowest[1]:.2f}",
            slowest[0],
            f"{steepest[2]:.1f}",
            steepest[0],
            f"{met} of {len(rows)} texts",
        ]
        summary.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    absent = [name for name in PEERS if name not in peers]
    lines = [
        "# Reading turns of text",
        "",
        "`python benchmarks/parsers.py`: milliseconds of CPU time for a text of 16,384 characters, and how many times",
        "as much ten times the text takes; the best of several tries, garbage collection off. Aimed at:",
        f"{GOAL_MS:.0f} ms and {GOAL_RATIO:.0f}. A turn's calls and tags are limited: of many hostile texts the rest",
        "is not read, and the ratio is small.",
        "",
        "Peers: `renderers` reads token ids, which a table turns into text here, cheaper than a tokenizer does;",
        "`qwen-agent` reads text with `json5`. In brackets: the ratio, where a try takes less than 100 ms.",
        *([f"Not installed: {', '.join(absent)}."] if absent else []),
        "",
        *summary,
        *tables,
        "",
        f"Machine: {describe('renderers', 'qwen-agent', 'json5')}.",
    ]
    publish(RESULTS, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
