"""Whether a server is asked to enforce the form of an answer: only one that does, and lets the model think first."""

from __future__ import annotations

import pytest
from faulty_openai import Act, Connection, refused, said, serve_faults
from judge_services import FORM, judging, question, run_alone

from rlfactory_core.errors import BackendError

pytestmark = pytest.mark.slow

NO_FORMAT = refused(400, "response_format of type json_schema is not supported")


def probe(held: Act, free: Act) -> Act:
    """What a server says with a form to hold, and without one."""

    async def act(connection: Connection) -> None:
        greeted = connection.body["messages"][-1]["content"] == "Hello"
        await (said("Hi") if greeted else held if "response_format" in connection.body else free)(connection)

    return act


def is_constrained(act: Act, output: str) -> bool:
    async def work() -> None:
        async with judging(server.url, output=output) as service:
            assert (await service.ask(question())).values == (0.5,)

    with serve_faults(probe=act) as server:
        run_alone(work)
        asked = server.requests[0]
    if "response_format" not in asked:
        return False
    schema = {"name": "verdict", "schema": FORM.schema, "strict": True}
    assert asked["response_format"] == {"type": "json_schema", "json_schema": schema}
    return True


CODE = said('{"code": 4711}')
THINKS = {"reasoning_content": "Sky? Blue."}


@pytest.mark.parametrize(
    ("held", "free", "auto"),
    [
        pytest.param(CODE, said("Yes."), True, id="enforced, no reasoning"),
        pytest.param(said('{"code": 4711}', **THINKS), said("Yes.", **THINKS), True, id="reasoning apart"),
        pytest.param(CODE, said("Sky? Blue.</think>Yes."), False, id="reasoning in the text"),
        pytest.param(CODE, said("Okay, the user asks", finish="length"), False, id="perhaps reasoning"),
        pytest.param(said("Yes."), said("Yes."), False, id="ignored"),
        pytest.param(NO_FORMAT, said("Yes."), False, id="refused"),
        pytest.param(refused(500, "unknown field"), said("Yes."), False, id="fails on it"),
    ],
)
def test_auto(held: Act, free: Act, auto: bool) -> None:
    assert is_constrained(probe(held, free), "auto") is auto


def test_text_asks_for_nothing_and_json_always_for_the_form() -> None:
    assert not is_constrained(probe(CODE, said("Yes.")), "text")
    assert is_constrained(probe(CODE, said("Okay, the user asks", finish="length")), "json")


def test_a_form_that_the_server_cannot_hold_is_asked_for_in_words() -> None:
    refusal = refused(400, "Grammar error: the schema has an unsupported keyword")
    with serve_faults(refusal, probe=probe(CODE, said("Yes."))) as server:

        async def work() -> None:
            async with judging(server.url, output="auto") as service:
                for text in ("1", "2"):
                    assert (await service.ask(question(text))).values == (0.5,)

        run_alone(work)
        assert ["response_format" in body for body in server.requests] == [True, False, False]


def test_a_key_that_is_refused_is_said_at_the_start() -> None:
    with serve_faults(probe=refused(401, "invalid key")) as server:

        async def work() -> None:
            with pytest.raises(BackendError, match=r"401: invalid key.* Set the key"):
                async with judging(server.url):
                    pass

        run_alone(work)
