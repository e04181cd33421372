"""Messages stay the same when a chat format writes them as tokens and parses them, in every model family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from rlfactory_core import Lazy
from rlfactory_core.chat import TemplateFormat, ToyChatFormat, choose_format
from rlfactory_core.errors import ChatFormatError, MissingExtraError
from rlfactory_core.plugins import Registration, optional_attributes
from rlfactory_core.protocols import ChatFormat, ChatFormatFactoryTraits
from rlfactory_core.reporting import mask_problem
from rlfactory_core.runner import Policy, TaskBench, make_chat, oracle
from rlfactory_core.types import Message, Sample, Trajectory
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import Evidence, describe_error, judged, seen
from rlfactory_devkit.rewards import exact_rewards, masking_fault
from rlfactory_devkit.tokenizers import families, tiny_tokenizer

_EPISODES = 2  # the oracle's longest ones


def check(context: CheckContext) -> Iterator[Evidence]:
    """Plays the oracle's longest episodes as bytes, with each registered format's small tokenizer and with ``--model``.

    The format's own proof has to hold on its tokenizer. The parsed turns have to equal the turns that were written,
    the loss mask has to select exactly the sampled tokens, and the reward has to equal the one with bytes.
    """
    longest = sorted(context.oracle(), key=lambda each: -len(each.turns))
    for name, tokenizer in _tokenizers(context):
        if isinstance(tokenizer, str):
            yield seen(f"{name}: not tried, {tokenizer}")
            continue
        playable: Sequence[Trajectory] = ()
        try:
            chat = _format(context.bench, name, tokenizer)
            chat.prove()
            playable = _playable(chat, longest)
            problem = _problem(context, chat, playable)
        except ChatFormatError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary to a plugin's chat format and to the task
            problem = describe_error(error)
            context.renew()
        yield judged(
            problem and f"{name}: {problem}",
            f"{name}: {len(playable)} of the oracle's episodes are parsed as written and get the same reward",
        )


def _tokenizers(context: CheckContext) -> Iterator[tuple[str, Any]]:
    """A tokenizer for each format; a string says why there is none, None means bytes."""
    yield "bytes", None
    for item in context.bench.registry.registered("chat_format"):
        yield item.name, _tokenizer(item)
    for model in context.options.models:
        yield model, _model_tokenizer(model)


def _tokenizer(item: Registration) -> Any:
    factory = item.factory.load() if isinstance(item.factory, Lazy) else item.factory
    example = optional_attributes(factory, ChatFormatFactoryTraits, f"The chat format '{item.name}'").example
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
    return make_chat(chat, bench.registry)(tokenizer)


def _problem(context: CheckContext, chat: ChatFormat, longest: Sequence[Trajectory]) -> str:
    written: dict[str, list[Message]] = defaultdict(list)
    played = context.play(_recording(oracle(context.bench.task), written), [each.sample for each in longest], chat=chat)
    for before, each in zip(longest, played, strict=True):
        problem = _misread(each, written[each.sample.id]) or mask_problem(each)
        if problem:
            return f"sample '{each.sample.id}': {problem}"
        if each.masked and not before.masked:
            return f"sample '{each.sample.id}' is masked: {masking_fault(each)}"
        if exact_rewards(context.bench, each) != exact_rewards(context.bench, before):
            return f"sample '{each.sample.id}' gets {each.reward:g}, and {before.reward:g} with bytes"
    return ""


def _recording(policy: Policy, written: dict[str, list[Message]]) -> Policy:
    def recording(sample: Sample, *conversation: Any) -> Message:
        message = policy(sample, *conversation)
        assert isinstance(message, Message)
        written[sample.id].append(message)
        return message

    return recording


def _playable(chat: ChatFormat, played: Sequence[Trajectory]) -> Sequence[Trajectory]:
    """The first few episodes; for a family that allows one call a turn, only those that keep to it."""
    if isinstance(chat, TemplateFormat) and chat.abilities.calls == 1:
        played = [each for each in played if all(len(turn.message.tool_calls) <= 1 for turn in each.turns)]
    return played[:_EPISODES]


def _misread(played: Trajectory, written: Sequence[Message]) -> str:
    for number, (turn, meant) in enumerate(zip(played.turns, written, strict=False), 1):
        read = [(call.name, dict(call.arguments or {})) for call in turn.message.tool_calls]
        calls = [(call.name, dict(call.arguments or {})) for call in meant.tool_calls]
        if read != calls:
            return f"turn {number} called {calls}, and {read} was parsed"
        content = turn.message.content.strip()
        if content != meant.content.strip() and not (calls and not content):  # some formats drop text beside a call
            return f"turn {number} said {meant.content[:80]!r}, and {content[:80]!r} was parsed"
    return ""
