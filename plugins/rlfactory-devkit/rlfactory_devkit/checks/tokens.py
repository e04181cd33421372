"""Messages stay the same when a chat format writes them as tokens and parses them, in every model family."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from rlfactory_core import Lazy
from rlfactory_core.chat import TemplateFormat, ToyChatFormat, choose_format
from rlfactory_core.errors import ChatFormatError, MissingExtraError
from rlfactory_core.plugins import optional_attributes
from rlfactory_core.protocols import ChatFormat, ChatFormatFactoryTraits
from rlfactory_core.reporting import mask_problem
from rlfactory_core.runner import make_chat, oracle
from rlfactory_core.types import Message, Sample, Trajectory
from rlfactory_devkit.checks.context import CheckContext
from rlfactory_devkit.checks.result import DoesNotApply, Evidence, describe_error, judged, seen
from rlfactory_devkit.rewards import exact_rewards, masking_fault
from rlfactory_devkit.tokenizers import families, tiny_tokenizer

_EPISODES = 2  # the oracle's longest ones


def check(context: CheckContext) -> Iterator[Evidence]:
    """Plays the oracle's longest episodes as bytes, with each registered format's small tokenizer and with ``--model``.

    The format's own proof has to hold on its tokenizer. The parsed turns have to equal the turns that were written,
    the loss mask has to select exactly the sampled tokens, and the reward has to equal the one with bytes.
    """
    longest = sorted(context.oracle(), key=lambda each: -len(each.turns))
    for name, make in _formats(context):
        played = longest[:_EPISODES]
        try:
            chat = make()
            chat.prove()
            if isinstance(chat, TemplateFormat) and chat.abilities.calls == 1:  # a family that allows one call a turn
                single = (each for each in longest if all(len(turn.message.tool_calls) <= 1 for turn in each.turns))
                played = list(islice(single, _EPISODES))
            problem = _problem(context, chat, played)
        except (MissingExtraError, DoesNotApply) as reason:
            yield seen(f"{name}: not tried, {reason}")
            continue
        except ChatFormatError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary to a plugin's chat format and to the task
            problem = describe_error(error)
            context.renew()
        yield judged(
            problem and f"{name}: {problem}",
            f"{name}: {len(played)} of the oracle's episodes are parsed as written and get the same reward",
        )


def _formats(context: CheckContext) -> Iterator[tuple[str, Callable[[], ChatFormat]]]:
    """Bytes, and each registered format and each of the user's models with its tokenizer."""
    registry, chat = context.bench.registry, context.bench.config.chat
    factories = {item.name: item.factory for item in registry.registered("chat_format")}

    def registered(name: str) -> ChatFormat:
        factory: Any = factories[name]
        factory = factory.load() if isinstance(factory, Lazy) else factory
        example = optional_attributes(factory, ChatFormatFactoryTraits, f"The chat format '{name}'").example
        if example is None and name not in families():
            raise DoesNotApply("its factory has no example() of a tokenizer")
        return choose_format(
            factories, example() if example else tiny_tokenizer(name), name=name, thinking=chat.thinking
        )

    def of_model(model: str) -> ChatFormat:
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise DoesNotApply("transformers is not installed: python -m pip install 'rlfactory-core[local]'") from None
        return make_chat(chat, registry)(AutoTokenizer.from_pretrained(model))

    yield "bytes", ToyChatFormat
    yield from ((name, partial(registered, name)) for name in factories)
    yield from ((model, partial(of_model, model)) for model in context.options.models)


def _problem(context: CheckContext, chat: ChatFormat, longest: Sequence[Trajectory]) -> str:
    written: dict[str, list[Message]] = defaultdict(list)
    bench = context.bench
    solve = oracle(bench.task)

    def recording(sample: Sample, *conversation: Any) -> Message:
        message = solve(sample, *conversation)
        assert isinstance(message, Message)
        written[sample.id].append(message)
        return message

    played = context.play(recording, [each.sample for each in longest], chat=chat)
    for before, each in zip(longest, played, strict=True):
        problem = _misread(each, written[each.sample.id]) or mask_problem(each)
        if problem:
            return f"sample '{each.sample.id}': {problem}"
        if each.masked and not before.masked:
            return f"sample '{each.sample.id}' is masked: {masking_fault(each)}"
        if exact_rewards(bench, each) != exact_rewards(bench, before):
            return f"sample '{each.sample.id}' gets {each.reward:g}, and {before.reward:g} with bytes"
    return ""


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
