"""Takes the reasoning off a raw answer: a verdict that the judge only considered must never count.

The client takes it off too where a server gives it apart or ends it with ``</think>``; here the rest is done, once more
without harm: other models' tags, and reasoning that the token limit cut before its end.
"""

from __future__ import annotations

from rlfactory_judge.contract import UnreadableError

# Qwen, QwQ, DeepSeek and most; others; Mistral; Kimi
_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"))
_CHANNEL = "<|channel|>"  # gpt-oss: several channels, of which ``final`` is the answer
_FINAL = _CHANNEL + "final<|message|>"


def without_reasoning(text: str) -> str:
    """What stands behind the last end of reasoning, stripped of white space; the whole text where there is none.

    Raises:
        UnreadableError: reasoning begins and does not end.
    """
    if _CHANNEL in text:
        _, final, text = text.rpartition(_FINAL)
        if not final:
            raise UnreadableError("The judge's answer ends within its reasoning. Raise max_tokens.")
    for begin, end in _TAGS:
        text = text.rpartition(end)[2]
        if begin in text:
            raise UnreadableError(
                f"The judge's answer ends within its reasoning ({begin} is not closed). Raise max_tokens."
            )
    return text.strip()
