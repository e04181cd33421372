"""What is said becomes tokens and the same again, in every model family's format."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from rlfactory_core.chat.select import choose_format, configured_format
from rlfactory_core.errors import ChatFormatError, MissingExtraError
from rlfactory_core.plugins.loading import Registration
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.testing.bench import TaskBench
from rlfactory_core.testing.chat import ToyChatFormat
from rlfactory_core.testing.checks.result import Evidence, seen, wrong
from rlfactory_core.testing.checks.rewards import certain, opinions, spoilt
from rlfactory_core.testing.checks.subject import Subject
from rlfactory_core.testing.checks.telling import told
from rlfactory_core.testing.policies import Policy, oracle
from rlfactory_core.testing.tokenizers import families, tiny_tokenizer
from rlfactory_core.types import Message, Sample, ToolSpec, Trajectory

_EPISODES = 2  # of the oracle's longest


def check(subject: Subject) -> Iterator[Evidence]:
    """The oracle's longest episodes in bytes, in each registered format with a small tokenizer, and in ``--model``'s.

    A format proves itself on its tokenizer; then the turns read are the turns said, the loss counts exactly the
    sampled tokens, and the reward is that in bytes.
    """
    longest = sorted(subject.oracle(), key=lambda each: -len(each.turns))
    for name, tokenizer in _tokenizers(subject):
        if isinstance(tokenizer, str):
            yield seen(f"{name}: not tried, {tokenizer}")
            continue
        try:
            chat = _format(subject.bench, name, tokenizer)
            chat.prove()
            problem = _problem(subject, chat, _playable(chat, longest))
        except ChatFormatError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary to a plugin's chat format and to the task
            problem = told(error)
            subject.renew()
        if problem:
            yield wrong(f"{name}: {problem}")
        else:
            count = len(_playable(chat, longest))
            yield seen(f"{name}: {count} of the oracle's episodes are read as they were said, to the same reward")


def _tokenizers(subject: Subject) -> Iterator[tuple[str, Any]]:
    """By format; a text says why there is none, None is for bytes."""
    yield "bytes", None
    for item in subject.bench.registry.registered("chat_format"):
        yield item.name, _tokenizer(item)
    for model in subject.models:
        yield model, _model_tokenizer(model)


def _tokenizer(item: Registration) -> Any:
    factory = item.factory.load() if hasattr(item.factory, "load") else item.factory
    example = getattr(factory, "example", None)
    try:
        if example is not None:
            return example()
        return tiny_tokenizer(item.name) if item.name in families() else "its factory has no example() of a tokenizer"
    except MissingExtraError as error:
        return str(error)


def _model_tokenizer(model: str) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        return "transformers is not installed: python -m pip install 'rlfactory-core[local]'"
    return AutoTokenizer.from_pretrained(model)


def _format(bench: TaskBench, name: str, tokenizer: Any) -> ChatFormat:
    if tokenizer is None:
        return ToyChatFormat()
    chat = bench.config.chat
    formats = {item.name: item.factory for item in bench.registry.registered("chat_format")}
    if name in formats:
        return choose_format(formats, tokenizer, name=name, thinking=chat.thinking)
    return configured_format(chat, bench.registry, tokenizer)


def _problem(subject: Subject, chat: ChatFormat, longest: Sequence[Trajectory]) -> str:
    said: dict[str, list[Message]] = defaultdict(list)
    played = subject.play(_noted(oracle(subject.bench.task), said), [each.sample for each in longest], chat=chat)
    judges = opinions(subject.bench)
    for before, each in zip(longest, played, strict=True):
        problem = _misread(each, said[each.sample.id]) or _miscounted(each)
        if problem:
            return f"sample '{each.sample.id}': {problem}"
        if each.masked and not before.masked:
            return f"sample '{each.sample.id}' is spoilt: {spoilt(each)}"
        if certain(each, judges) != certain(before, judges):
            return f"sample '{each.sample.id}' gets {each.reward:g}, and {before.reward:g} in bytes"
    return ""


def _noted(policy: Policy, said: dict[str, list[Message]]) -> Policy:
    def noting(
        sample: Sample, messages: Sequence[Message], tools: Sequence[ToolSpec], rng: random.Random
    ) -> Message | str:
        message = policy(sample, messages, tools, rng)
        assert isinstance(message, Message)
        said[sample.id].append(message)
        return message

    return noting


def _playable(chat: ChatFormat, played: Sequence[Trajectory]) -> Sequence[Trajectory]:
    """The first few; of a family whose turns hold one call, those without a turn of several."""
    if getattr(getattr(chat, "abilities", None), "calls", None) == 1:
        played = [each for each in played if all(len(turn.message.tool_calls) <= 1 for turn in each.turns)]
    return played[:_EPISODES]


def _misread(played: Trajectory, said: Sequence[Message]) -> str:
    for number, (turn, meant) in enumerate(zip(played.turns, said, strict=False), 1):
        read = [(call.name, dict(call.arguments or {})) for call in turn.message.tool_calls]
        calls = [(call.name, dict(call.arguments or {})) for call in meant.tool_calls]
        if read != calls:
            return f"turn {number} called {calls}, and {read} was read"
        content = turn.message.content.strip()
        if content != meant.content.strip() and not (calls and not content):  # some have no text beside a call
            return f"turn {number} said {meant.content[:80]!r}, and {content[:80]!r} was read"
    return ""


def _miscounted(played: Trajectory) -> str:
    mask, sampled = played.loss_mask, [i for turn in played.turns for i in turn.sampled_ids]
    counted = [i for i, counts in zip(played.ids, mask, strict=True) if counts]
    if counted != sampled or sum(mask) != played.num_sampled or len(played.logprobs) != len(mask):
        return "the loss does not count exactly what was sampled"
    return ""
