"""A teacher behind a server, as vLLM answers: its log-probs, and what is refused before the training."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from fake_openai import Answer, FakeServer, Reply, error, serve

from rlfactory_core.clients import ServerTeacher
from rlfactory_core.errors import BackendError, ConfigError, UsageError
from rlfactory_core.types import TaughtToken, TrainSequence

WORDS = [*(f" word{number}" for number in range(40)), "\ufffd", "<call>"]
SEQUENCES = [
    TrainSequence((1, 2, 3, 4, 5), (0, 0, 1, 0, 1), (0.0,) * 5, (0.0,) * 5),
    TrainSequence((7, 8), (0, 1), (0.0,) * 2, (0.0,) * 2),
]


class Words:
    """A tokenizer with a word for each id, and one that was added."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def get_vocab(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}

    def get_added_vocab(self) -> dict[str, int]:
        return {"<call>": self.words.index("<call>")}

    def decode(self, ids: list[int]) -> str:
        return self.words[ids[0]]


def logprob(token: int) -> float:
    return -token / 8


def answering(words: list[str] = WORDS, **changed: Any) -> Answer:
    """As vLLM: nothing of the first token, and of each other and of the likeliest log-prob, rank and text."""

    def answer(body: Mapping[str, Any]) -> Reply:
        rows = [
            {
                str(each): {"logprob": logprob(each), "rank": each + 1, "decoded_token": words[each], **changed}
                for each in (token, *range(body["prompt_logprobs"]))
            }
            for token in body["prompt"][1:]
        ]
        return Reply(body={"choices": [{"index": 0, "text": "!", "prompt_logprobs": [None, *rows]}]})

    return answer


def models(context: int) -> Reply:
    return Reply(body={"data": [{"id": "big", "max_model_len": context}]})


def ask(server: FakeServer, name: str = "", max_tokens: int = 64, likely: int = 0) -> list[list[TaughtToken]]:
    async def talk() -> Any:
        teacher = ServerTeacher(server.url + name, backoff_s=(0.0, 0.0), retries=2)
        try:
            await teacher.open(Words(WORDS), max_tokens, likely)
            return await teacher.score(SEQUENCES, likely)
        finally:
            await teacher.close()

    return asyncio.run(talk())


def test_the_log_probs_of_the_sampled_tokens_as_vllm_gives_them() -> None:
    with serve(answering(), models(100)) as server:
        assert ask(server) == [[TaughtToken(logprob(3)), TaughtToken(logprob(5))], [TaughtToken(logprob(8))]]
    probe, *asked = server.requests
    assert set(probe["prompt"]) == set(range(len(WORDS)))
    assert sorted((each["prompt"] for each in asked), key=len) == [[7, 8], [1, 2, 3, 4, 5]]
    assert asked[0] | {"prompt": []} == {
        **{"model": "big", "prompt": [], "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
    }


def test_the_likeliest_ids_at_each_sampled_token() -> None:
    with serve(answering(), models(100)) as server:
        (one, two), (three,) = ask(server, likely=2)
    assert [each.logprob for each in (one, two, three)] == [logprob(3), logprob(5), logprob(8)]
    assert {(each.likely, each.logprobs) for each in (one, two, three)} == {((0, 1), (logprob(0), logprob(1)))}


def test_a_server_that_names_fewer_is_refused() -> None:
    refusal = error(400, "Requested prompt logprobs of 2, which is greater than max allowed: 1")
    with serve(lambda _: refusal, models(100)) as server, pytest.raises(ConfigError, match="--max-logprobs 2"):
        ask(server, likely=2)


def test_a_server_that_is_busy_for_a_moment_is_asked_again() -> None:
    refusals = [error(503, "busy"), error(429, "slow down")]

    def answer(body: Mapping[str, Any]) -> Reply:
        return refusals.pop() if len(body["prompt"]) == 2 and refusals else answering()(body)

    with serve(answer, models(100)) as server:
        assert ask(server)[1] == [TaughtToken(logprob(8))]


@pytest.mark.parametrize(
    ("answer", "served", "kind", "said"),
    [
        (
            answering([*WORDS[:-1], "<tool>"]),
            models(100),
            ConfigError,
            "token 41 is '<call>' for the model and '<tool>'",
        ),
        (lambda _: error(400, "Token id 41 is out of vocabulary"), models(100), ConfigError, "out of vocabulary"),
        (answering(), models(64), ConfigError, "its context is 64 tokens"),
        (
            answering(),
            ("big", "small"),
            UsageError,
            "choose one in train.teacher, as ADDRESS#MODEL. Served: big, small",
        ),
        (answering(decoded_token=None), models(100), BackendError, "without --skip-tokenizer-init"),
        (answering(logprob="-1"), models(100), BackendError, "expected `prompt_logprobs`"),
        (lambda _: Reply(body={"choices": [{"text": "!"}]}), models(100), BackendError, "expected `prompt_logprobs`"),
        (lambda _: error(404, "no completions here"), models(100), BackendError, "no completions here"),
    ],
)
def test_what_is_refused_in_words(
    answer: Callable[[Mapping[str, Any]], Reply], served: Any, kind: type[Exception], said: str
) -> None:
    with serve(answer, served) as server, pytest.raises(kind) as found:
        ask(server)
    assert said in str(found.value)


def test_one_of_several_models_is_named_behind_the_address() -> None:
    with serve(answering(), ("big", "small")) as server:
        ask(server, "#small")
    assert {each["model"] for each in server.requests} == {"small"}
