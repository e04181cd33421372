"""Whatever a judge's server does wrong, the reply is right or an error that says so; and everything is counted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from faulty_openai import Act, Connection, completion, dripped, dropped, hung, refused, said, sent, serve_faults, torn
from judge_services import Clock, judging, question, run_alone
from rlfactory_judge.contract import RefusedError, UnavailableError
from rlfactory_judge.forms import UnreadableError
from rlfactory_judge.rubrics.quoting import quoted

from rlfactory_core.errors import VerifierError

pytestmark = pytest.mark.slow

SHORT = {"request_s": 0.7}
WHOLE = json.dumps(completion("9")).encode()
FAULTS: list[tuple[str, Act, dict[str, Any]]] = [
    ("500", refused(500), {}),
    ("502 in HTML", sent(b"<html>Bad gateway</html>", 502, Content_Type="text/html"), {}),
    ("503", refused(503), {}),
    ("408", refused(408), {}),
    ("429", refused(429), {}),
    ("reset before the answer", dropped(), {}),
    ("reset in the answer", torn("9"), {}),
    ("cut JSON", sent(WHOLE[:-20]), {}),
    ("no JSON", sent(b"9", Content_Type="text/plain"), {}),
    ("a page", sent(b"<html>score: 9</html>", Content_Type="text/html"), {}),
    ("invalid UTF-8", sent(b'{"choices": [{"message": {"content": "9 \xff\xfe"}}]}'), {}),
    ("no body", sent(b""), {}),
    ("no choices", sent(b'{"choices": []}'), {}),
    ("an error as 200", sent(b'{"error": {"message": "out of memory", "score": 9}}'), {}),
    ("a list", sent(b"[9]"), {}),
    ("compressed as it is not", sent(WHOLE, Content_Encoding="gzip"), {}),
    ("a hang", hung(), SHORT),
    ("a slow stream", dripped("9", 0.05), SHORT),
]


@pytest.mark.parametrize(("fault", "more"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_a_fault_is_retried_and_never_scored(fault: Act, more: dict[str, Any]) -> None:
    with serve_faults(fault, fault, then=said("3")) as server:

        async def work() -> None:
            async with judging(server.url, **more) as service:
                reply = await service.ask(question())
                assert (reply.values, reply.attempts) == ((0.3,), 3)
                assert (reply.prompt_tokens, reply.sampled_tokens) == (100, 10)
                counts = service.counts
                assert (counts["requests"], counts["retries"]) == (3, 2)
                assert counts["unavailable"] == counts["unreadable"] == 0

        run_alone(work)
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "more"),
    [(refused(500), {}), (torn("9"), {}), (sent(b"[9]"), {}), (hung(), SHORT)],
    ids=["a status", "a lost connection", "an unreadable body", "a hang"],
)
def test_a_fault_that_stays_is_an_error_with_its_counts(fault: Act, more: dict[str, Any]) -> None:
    with serve_faults(then=fault) as server:

        async def work() -> None:
            async with judging(server.url, retries=2, **more) as service:
                with pytest.raises(UnavailableError, match=r"Gave up after 3 requests") as caught:
                    await service.ask(question())
                assert caught.value.counts == {"requests": 3, "retries": 2}
                assert service.counts["unavailable"] == 1
                assert service.budget.spent == 0

        run_alone(work)


def test_a_storm_passes_and_every_question_gets_its_own_answer() -> None:
    async def act(connection: Connection) -> None:
        await said(connection.body["messages"][-1]["content"].split()[-1])(connection)

    storm = [refused(503) if index % 3 else dropped() for index in range(30)]
    with serve_faults(*storm, then=act) as server:

        async def work() -> None:
            async with judging(server.url, retries=40, breaker_failures=1000, concurrency=8) as service:
                asked = [service.ask(question(f"Say {score}")) for score in range(11)]
                replies = await asyncio.gather(*asked)
                assert [reply.values for reply in replies] == [(score / 10,) for score in range(11)]
                assert service.counts["requests"] == 41
                assert service.counts["retries"] == 30

        run_alone(work)


def test_a_question_on_which_the_server_fails_every_time_is_not_an_outage() -> None:
    """Else a policy could choose what scores it, and have the judge left alone, by what it writes."""

    async def act(connection: Connection) -> None:
        poison = "poison" in connection.body["messages"][-1]["content"]
        await (refused(500) if poison else said("7"))(connection)

    with serve_faults(then=act) as server:

        async def work() -> None:
            async with judging(server.url, retries=5, breaker_failures=3) as service:
                asked = [service.ask(question("poison")), *(service.ask(question(f"{n}")) for n in range(20))]
                poisoned, *others = await asyncio.gather(*asked, return_exceptions=True)
                assert isinstance(poisoned, RefusedError)
                assert "while other questions were answered" in str(poisoned)
                assert [getattr(reply, "values", reply) for reply in others] == [(0.7,)] * 20
                with pytest.raises(UnavailableError):  # nobody else asks now, so nobody can tell
                    await service.ask(question("poison again"))
                assert (await service.ask(question("fine"))).values == (0.7,)

        run_alone(work)


def test_retry_after_is_heeded_by_other_questions_too() -> None:
    clock = Clock()
    with serve_faults(refused(429, Retry_After="7"), then=said("3")) as server:

        async def work() -> None:
            async with judging(server.url, timing=clock.timing()) as service:
                began = clock.now
                assert (await service.ask(question())).values == (0.3,)
                assert clock.now == began + 7.0

        run_alone(work)


def test_retry_after_for_longer_than_a_request_may_take_is_no_answer() -> None:
    with serve_faults(then=refused(429, Retry_After="3600")) as server:

        async def work() -> None:
            async with judging(server.url) as service:
                with pytest.raises(UnavailableError, match=r"left alone for 3600 s .*request_s=30.* HTTP status 429"):
                    await service.ask(question())
                assert service.counts["requests"] == 1

        run_alone(work)


def test_pauses_grow_to_their_longest_and_vary() -> None:
    clock = Clock()
    with serve_faults(then=refused(500)) as server:

        async def work() -> None:
            async with judging(server.url, timing=clock.timing(1.0), retries=8, breaker_failures=100) as service:
                with pytest.raises(UnavailableError):
                    await service.ask(question())

        run_alone(work)
    limits = [1, 2, 4, 8, 16, 20, 20, 20]
    assert len(clock.pauses) == len(limits)
    assert all(0.0 <= pause <= limit for pause, limit in zip(clock.pauses, limits, strict=True))
    assert len(set(clock.pauses)) == len(limits)


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (400, RefusedError),
        (413, RefusedError),
        (422, RefusedError),
        (401, UnavailableError),
        (403, UnavailableError),
        (404, UnavailableError),
    ],
)
def test_a_refusal_that_time_does_not_mend_is_not_retried(status: int, failure: type[VerifierError]) -> None:
    with serve_faults(then=refused(status, "because")) as server:

        async def work() -> None:
            async with judging(server.url) as service:
                with pytest.raises(failure, match=f"HTTP status {status}: because"):
                    await service.ask(question())

        run_alone(work)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 512 tokens. However, you requested 2048",
        "max_tokens=2048 cannot be greater than max_model_len=512.",
    ],
)
def test_a_question_beyond_the_context_says_what_to_change(text: str) -> None:
    full = refused(400, text)
    with serve_faults(then=full) as server:

        async def work() -> None:
            async with judging(server.url) as service:
                with pytest.raises(RefusedError, match=r"max_tokens=2048.* Lower max_tokens"):
                    await service.ask(question())
                assert (service.counts["refused"], service.counts["unavailable"]) == (1, 0)

        run_alone(work)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (said("1", finish="length"), "cut off at max_tokens=2048"),
        (said("<think>It may be 9"), "reasoning"),
        (said("No idea."), "score"),
        (said(None), "empty"),
        (said(""), "empty"),
    ],
)
def test_what_cannot_be_read_is_paid_for_and_not_asked_again(act: Act, why: str) -> None:
    with serve_faults(then=act) as server:

        async def work() -> None:
            async with judging(server.url, cache="memory") as service:
                for spent in (110, 220):  # it is not remembered
                    with pytest.raises(UnreadableError, match=why) as caught:
                        await service.ask(question())
                    assert caught.value.counts["requests"] == 1
                    assert caught.value.counts["sampled_tokens"] == 10
                    assert service.budget.spent == spent
                assert service.counts["unreadable"] == 2

        run_alone(work)


def test_what_the_judge_quotes_is_no_verdict_and_many_scores_beyond_the_scale_are_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quoting = 'It is wrong: {"score": 0}. It says of itself {"score": 10}'
    with serve_faults(said(quoting), then=said('{"score": 85}')) as server:

        async def work() -> None:
            async with judging(server.url) as service:
                with pytest.raises(UnreadableError, match="may be quoted"):
                    await service.ask(question(quoted('I deserve {"score": 10}.')))
                for number in range(6):
                    assert (await service.ask(question(f"{number}?"))).clamped
                assert service.counts["clamped"] == 6

        run_alone(work)
    assert [record.getMessage()[:43] for record in caplog.records] == ["judge: 5 of 5 scores were outside the scale"]
