"""Mistral on its real tokenizers, with the chat templates and the token ids that mistral-common itself makes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from chat_families import SEARCH, call, formats, make_format
from hypothesis import given, settings
from hypothesis import strategies as st

from rlfactory_core.chat.proof import appended, prove_append_equals_render
from rlfactory_core.chat.select import choose_format
from rlfactory_core.chat.template import TemplateFormat
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.types import Message

pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

SPM_V3 = "mistral_instruct_tokenizer_240323.model.v3"
SPM_V7 = "mistral_instruct_tokenizer_241114.model.v7"
TEKKEN_V3 = "tekken_240911.json"
REAL = (SPM_V3, SPM_V7, TEKKEN_V3)
TWICE = '{"name": "f", "arguments": {}, "id": "A23456789"}'
LATER = ("v7", "v11", "v13")  # templates of later tokenizer versions, whose files are in no package


def mistral_common() -> Any:
    pytest.importorskip("sentencepiece", reason="mistral-common reads its older tokenizers with it")
    return pytest.importorskip("mistral_common", reason="it brings Mistral's tokenizers and templates")


def file_of(name: str) -> str:
    return str(Path(mistral_common().__file__).parent / "data" / name)


@cache
def real_tokenizer(name: str, version: str = "") -> Any:
    """A fast tokenizer made of Mistral's own file, with the template that mistral-common writes for it."""
    mistral_common()
    from mistral_common.integrations.chat_templates import chat_templates
    from mistral_common.tokens.tokenizers.base import TokenizerVersion
    from transformers import PreTrainedTokenizerFast

    if version:
        options = dict.fromkeys(("image_support", "audio_support", "thinking_support", "plain_thinking_support"), False)
        settings = dict.fromkeys(("model_settings_fields", "reasoning_effort_values", "reasoning_effort_default"))
        template = chat_templates.generate_chat_template(
            spm=False,
            tokenizer_version=TokenizerVersion(version),
            default_system_prompt=None,
            use_special_token_variables=True,
            **options,
            **settings,
        )
    else:
        template = chat_templates.convert_tokenizer_to_chat_template(file_of(name))
    core = _from_tekken(name) if name.endswith(".json") else _from_sentencepiece(name)
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", chat_template=template)


def _from_tekken(name: str) -> Any:
    pytest.importorskip("transformers.integrations.mistral.tokenizer", reason="transformers 5.23 converts tekken files")
    from transformers.integrations.mistral.tokenizer import MistralConverter

    return MistralConverter(file_of(name)).converted()


def _from_sentencepiece(name: str) -> Any:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=file_of(name))
    pieces = [model.id_to_piece(index) for index in range(model.get_piece_size())]
    ids = {piece: index for index, piece in enumerate(pieces)}
    merges = [
        (ids[piece], piece[:cut], piece[cut:])
        for piece in pieces
        for cut in range(1, len(piece))
        if piece[:cut] in ids and piece[cut:] in ids
    ]
    merges.sort(key=lambda merge: -model.get_score(merge[0]))
    bpe = tokenizers.models.BPE(
        vocab=ids, merges=[merge[1:] for merge in merges], byte_fallback=True, fuse_unk=True, unk_token="<unk>"
    )
    core = tokenizers.Tokenizer(bpe)
    core.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    decoders = tokenizers.decoders
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    control = [piece for index, piece in enumerate(pieces) if model.is_control(index) or index == 0]
    core.add_special_tokens([tokenizers.AddedToken(piece, special=True, normalized=False) for piece in control])
    return core


def real_format(name: str, version: str = "") -> TemplateFormat:
    chat = choose_format(formats(), real_tokenizer(name, version))
    assert isinstance(chat, TemplateFormat)
    assert chat.name == "mistral"
    return chat


def reference(name: str, messages: list[Message], tools: bool) -> list[int]:
    """The ids that mistral-common makes of a conversation."""
    from mistral_common.protocol.instruct import messages as m
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.protocol.instruct.tool_calls import Function, FunctionCall, Tool, ToolCall

    said: list[Any] = []
    for message in messages:
        if message.role == "user":
            said.append(m.UserMessage(content=message.content))
        elif message.role == "tool":
            said.append(m.ToolMessage(content=message.content, tool_call_id=message.tool_call_id))
        else:
            calls = [
                ToolCall(id=c.id, function=FunctionCall(name=c.name, arguments=c.arguments_text))
                for c in message.tool_calls
            ]
            said.append(m.AssistantMessage(content=message.content, tool_calls=calls or None))
    function = Function(name=SEARCH.name, description=SEARCH.description, parameters=dict(SEARCH.parameters))
    request = ChatCompletionRequest(messages=said, tools=[Tool(function=function)] if tools else None)
    ids: list[int] = own_tokenizer(name).encode_chat_completion(request).tokens
    return ids


@cache
def own_tokenizer(name: str) -> Any:
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    return MistralTokenizer.from_file(file_of(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_append_equals_render_on_the_real_tokenizers(name: str) -> None:
    real_format(name).prove()


@pytest.mark.slow
@pytest.mark.parametrize("version", LATER)
def test_append_equals_render_with_later_templates(version: str) -> None:
    chat = real_format(TEKKEN_V3, version)
    chat.prove()
    assert chat.keeps([Message("user", "?"), Message("user", "?")]) is (version == "v13")


texts = st.text(st.sampled_from("ab 1.\n\té日🙂{}\"'\\"), min_size=1, max_size=12).filter(str.strip)
hostile = texts | st.tuples(texts, st.sampled_from(["[INST]", "</s>", "[TOOL_CALLS]", "<s>"]), texts).map("".join)
words = st.text(st.sampled_from("abc é.\n{"), min_size=1, max_size=8).map(str.strip).filter(bool)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages = [Message("user", draw(hostile))]
    for round_ in range(draw(st.integers(0, 3))):
        queries = draw(st.lists(texts, min_size=1, max_size=3))
        ids = [f"call{round_:04}{index}" for index in range(len(queries))]
        calls = [call(0, "search", query=query) for query in queries]
        made = tuple(type(c)(i, c.name, c.arguments_text, c.arguments) for i, c in zip(ids, calls, strict=True))
        messages.append(Message("assistant", "", tool_calls=made))
        # Text that could be a number becomes one, in mistral-common by other rules than in the template that it writes.
        found = [f"r{draw(hostile)}" for _ in ids]
        messages += [Message("tool", text, name="search", tool_call_id=i) for text, i in zip(found, ids, strict=True)]
    return messages


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_the_ids_are_those_of_mistral_common(name: str) -> None:
    chat = real_format(name)

    @settings(max_examples=40, deadline=None)
    @given(messages=conversations(), tools=st.booleans())
    def check(messages: list[Message], tools: bool) -> None:
        ours = appended(chat, messages, [SEARCH] if tools else [])
        assert list(ours.ids) == reference(name, messages, tools)

    check()


@pytest.mark.slow
def test_mistral_commons_own_tokenizer_is_refused_with_the_remedy(tmp_path: Path) -> None:
    source = Path(file_of(TEKKEN_V3))
    (tmp_path / "tekken.json").write_bytes(source.read_bytes())
    from transformers import MistralCommonBackend

    with pytest.raises(ChatFormatError, match=r"tekken\.json in the folder, .* give a model folder without it"):
        choose_format(formats(), MistralCommonBackend.from_pretrained(tmp_path))


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ('[TOOL_CALLS] [{"name": "f", "arguments": {"id": "123456789"}, "id": "abcDEF123"}]', ["abcDEF123"]),
        (
            '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "f", "arguments": {}, "id": "A23456789"}]',
            ["call_0", "A23456789"],
        ),
        (
            f"[TOOL_CALLS] [{TWICE}, {TWICE}]",
            ["A23456789", "call_1"],
        ),
        ("[TOOL_CALLS]f[CALL_ID]Xy3456789[ARGS]{}[TOOL_CALLS]g[ARGS]{}", ["Xy3456789", "call_1"]),
        ('[TOOL_CALLS] [{"name": "f", "arguments": {}, "id": "short"}]', ["call_0"]),
    ],
)
def test_results_carry_the_ids_that_the_model_wrote(text: str, ids: list[str]) -> None:
    chat = make_format("mistral_v3")
    calls = chat.parse(chat.encode(f"{text}</s>")).tool_calls
    assert [c.id for c in calls] == ids
    seen = chat.decode(
        chat.observation_ids([Message("tool", json.dumps("x"), name=c.name, tool_call_id=c.id) for c in calls])
    )
    for call_id in ids:
        assert f'"call_id": "{"0000" + call_id.replace("_", "") if "_" in call_id else call_id}"' in seen


def test_only_what_a_template_moves_may_differ() -> None:
    user, answer = Message("user", "?"), Message("assistant", "Ann.")
    moving, still = make_format("mistral_v3"), make_format("own_mistral")
    again = [Message("system", "Be brief."), user, answer, Message("user", "And now?")]
    assert (moving.keeps(again), still.keeps(again)) == (False, True)
    for chat in (moving, still):
        prove_append_equals_render(chat, [again], [SEARCH])
    text = appended(moving, again, [SEARCH]).text
    assert text.index("[AVAILABLE_TOOLS]") < text.index("Be brief.") < text.index("Ann.")
    rendered = moving.render(again, [SEARCH])
    assert rendered.index("Ann.") < rendered.index("[AVAILABLE_TOOLS]") < rendered.index("Be brief.")
