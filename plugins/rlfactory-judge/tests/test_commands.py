"""``rlfactory judge`` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from fake_openai import Reply, error, said, serve
from runs import Cli

ASKED = ("--prompt", "What is 6 times 7?", "--answer", "It is 42.", "--truth", "42")


@pytest.fixture
def cli(capsys):
    return Cli(capsys)


def test_one_answer_is_judged_and_shown_with_the_judges_own_words(cli):
    with serve(lambda _: said('The truth is 42, so: {"score": 8}', reasoning_content="six times seven")) as server:
        outcome = cli("judge", "ask", "--url", server.url, *ASKED)

    assert outcome.code == 0, outcome.err
    assert "six times seven" in outcome.out
    assert "so: " in outcome.out
    assert "0.8  (8 on the scale from 0 to 10)" in outcome.out
    with serve(lambda _: said('{"score": 95}')) as server:
        beyond = cli("judge", "ask", "--url", server.url, *ASKED)
    assert "1  (10 on the scale from 0 to 10; the reply's number is outside it)" in beyond.out
    assert "100 + 10 tokens" in outcome.out
    sent = " ".join(message["content"] for body in server.chats for message in body["messages"])
    assert "What is 6 times 7?" in sent
    assert "It is 42." in sent


def test_as_json_with_a_scale_and_the_prompt(cli):
    with serve(lambda _: said("3")) as server:
        scale = ("low=1", "high=5", "--show-prompt", "--json")
        outcome = cli("judge", "ask", "--url", server.url, *ASKED, *scale)

    found = json.loads(outcome.out)
    assert found["score"] == pytest.approx(0.5)
    assert found["raw"] == pytest.approx(3)
    assert found["endpoint"].startswith(server.url.removesuffix("/v1"))
    assert "It is 42." in found["prompt"]["user"]


def test_texts_come_from_files_and_the_rubric_is_ones_own(cli, tmp_path):
    (tmp_path / "answer.txt").write_text("forty-two", encoding="utf-8")
    rubric = tmp_path / "kind.jinja"
    rubric.write_text("{% block user %}Is it kind? {{ answer }} {{ form.instruction }}{% endblock %}", encoding="utf-8")

    with serve(lambda _: said("3")) as server:
        texts = ("--prompt", "q", "--answer", f"@{tmp_path / 'answer.txt'}", "--rubric", rubric)
        outcome = cli("judge", "ask", "--url", server.url, *texts)

    assert outcome.code == 0, outcome.err
    asked = server.chats[-1]["messages"][-1]["content"]
    assert "Is it kind?" in asked
    assert "forty-two" in asked


def test_nothing_is_remembered_from_one_question_to_the_next(cli):
    scores = iter(("2", "9"))

    def answer(body):
        return said(f"{next(scores)}") if "6 times 7" in body["messages"][-1]["content"] else said("1")

    with serve(answer) as server:
        found = [json.loads(cli("judge", "ask", "--url", server.url, *ASKED, "--json").out) for _ in range(2)]

    assert [one["raw"] for one in found] == pytest.approx([2, 9])


def test_a_reply_that_cannot_be_read_is_shown_and_is_no_score(cli):
    with serve(lambda _: said("Quite good!")) as server:
        outcome = cli("judge", "ask", "--url", server.url, *ASKED)

    assert outcome.code == 1
    assert "Quite good!" in outcome.err
    assert "Traceback" not in outcome.err


def test_a_server_that_says_no_is_quoted(cli):
    with serve(lambda _: error(500, "no memory left")) as server:
        outcome = cli("judge", "ask", "--url", server.url, *ASKED)

    assert outcome.code in (1, 2)
    assert "no memory left" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--prompt", "@nowhere.txt", "--answer", "a"), "nowhere.txt"),
        (("--prompt", "q", "--answer", "a", "low=3", "high=1"), "low"),
        (("--prompt", "q", "--answer", "a", "--rubric", "steps"), "steps"),
    ],
)
def test_a_question_that_cannot_be_put_is_refused(cli, arguments, word):
    assert word in cli.refusal("judge", "ask", "--url", "http://127.0.0.1:9/v1", *arguments)


def test_a_judge_that_is_not_there_is_named(cli):
    with serve(lambda _: Reply(0)) as server:
        url = server.url

    assert url in cli.refusal("judge", "ask", "--url", url, *ASKED)


def test_the_group_lists_its_commands_and_imports_nothing_heavy_before_one_is_called(cli):
    assert {"ask", "calibrate"} <= set(cli("judge", "--help").out.split())

    heavy = "{'torch', 'transformers', 'httpx'} & set(sys.modules)"
    code = f"import sys, rlfactory_judge.commands; print({heavy} or 'light')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "light\n"
