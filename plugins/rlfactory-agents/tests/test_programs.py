"""Agents that are programs: what they get and answer, how they fail, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from agent_plays import LONG_S, SAMPLE, play
from click.testing import CliRunner
from conversations import CHAT, LIMITS, RecordingSampler, episode
from process_tree import is_gone, is_running
from rlfactory_agents.command import agents
from rlfactory_agents.play import Player, play_agent
from rlfactory_agents.program import MAX_OUTPUT, ProgramAgents, read_output
from rlfactory_agents.server import Gateway
from rlfactory_devkit.tokenizers import tiny_tokenizer

from rlfactory_core.errors import ConfigError
from rlfactory_core.gateway import AgentConfig
from rlfactory_core.rollout import TokenModel
from rlfactory_core.types import StopReason, Trajectory


def program(tmp_path: Path, code: str, **options: Any) -> ProgramAgents:
    """An agent that is a Python program; ``ask(text)`` in it asks the model."""
    head = """
        import json, os, subprocess, sys, time, urllib.request

        def ask(text, environment=os.environ):
            body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
            key = {"authorization": "Bearer " + environment["OPENAI_API_KEY"], "content-type": "application/json"}
            request = urllib.request.Request(environment["OPENAI_BASE_URL"] + "/chat/completions", body, key)
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            return json.load(opener.open(request))["choices"][0]["message"]["content"]
        """
    file = tmp_path / "agent.py"
    file.write_text(textwrap.dedent(head) + textwrap.dedent(code))
    return ProgramAgents(f"{sys.executable} {file}", **options)


def test_a_program_answers_on_its_last_line(tmp_path: Path) -> None:
    code = """
        sample = json.load(sys.stdin)
        assert sample == json.load(open(os.environ["RLFACTORY_SAMPLE"]))
        print("looking …")
        print(json.dumps({"answer": ask(sample["prompt"]), "metadata": sample}))
        """
    played = play(program(tmp_path, code))
    assert (played.answer, played.stop) == ("him", StopReason.FINAL_ANSWER)
    messages = [{"role": "system", "content": "Short."}, {"role": "user", "content": "Who?"}]
    assert played.info == {"id": "s", "prompt": "Who?", "messages": messages, "metadata": {"town": "Ransta"}}


def test_a_program_sees_no_secrets_but_those_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hidden")
    monkeypatch.setenv("SEARCH_KEY", "named")
    code = 'ask("?"); print(json.dumps({"answer": "x", "metadata": dict(os.environ)}))'
    seen = play(program(tmp_path, code, environment=["SEARCH_KEY"])).info
    assert seen["SEARCH_KEY"] == "named"
    assert "DATABASE_PASSWORD" not in seen
    assert seen["ANTHROPIC_BASE_URL"] + "/v1" == seen["OPENAI_BASE_URL"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('ask("?"); sys.exit("no such town")', "exited with status 1: no such town"),
        ('ask("?"); print("\\x1b[2J", file=sys.stderr); sys.exit(4)', r"exited with status 4: \x1b[2J"),
        ('ask("?"); os.kill(os.getpid(), 9)', "was ended by SIGKILL"),
        ('ask("?")', "without an answer"),
        ('print("him")', "never asked"),
        (f'ask("?"); sys.stdout.write("x" * {2 * MAX_OUTPUT})', "bytes to its standard output"),
    ],
)
def test_a_program_that_fails(tmp_path: Path, code: str, words: str) -> None:
    played = play(program(tmp_path, code))
    assert played.stop is StopReason.AGENT_FAILED
    assert words in played.faults[0].message


@pytest.mark.slow
def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    code = """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open(sys.argv[0] + ".pids", "w").write(f"{os.getpid()} {child.pid}")
        ask("?")
        time.sleep(600)
        """
    agent = program(tmp_path, code)
    played = play(agent, deadline_s=5.0)
    assert played.masked
    pids = map(int, (tmp_path / "agent.py.pids").read_text().split())
    assert all(map(is_gone, pids))


def test_a_child_that_outlives_the_program_does_not_hold_the_attempt(tmp_path: Path) -> None:
    code = """
        print(ask("?"), flush=True)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open(sys.argv[0] + ".pid", "w").write(str(child.pid))
        """
    assert play(program(tmp_path, code)).answer == "him"
    assert is_gone(int((tmp_path / "agent.py.pid").read_text()))


def test_a_pool_of_programs_plays_one_attempt_after_the_other(tmp_path: Path) -> None:
    code = """
        for line in sys.stdin:
            sample = json.loads(line)
            said = ask(sample["prompt"], sample["environment"])
            if said == "die":
                sys.exit("dead")
            print(json.dumps({"answer": said, "metadata": {"pid": os.getpid()}}), flush=True)
        """
    agent = program(tmp_path, code, workers=1)

    async def run() -> list[Trajectory]:
        gateway = Gateway()
        await gateway.open()
        found = []
        for text in ("one", "two", "die", "three"):
            model = TokenModel(CHAT, RecordingSampler([text]))
            found.append(await play_agent(episode(), agent, model, gateway, LONG_S))
        await agent.close()
        await gateway.close()
        return found

    one, two, dead, three = asyncio.run(run())
    assert [each.answer for each in (one, two, dead, three)] == ["one", "two", None, "three"]
    assert one.info["pid"] == two.info["pid"] != three.info["pid"]
    assert not is_running(three.info["pid"])
    assert "dead" in dead.faults[0].message


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        ('python "agent.py', {}, "cannot be read"),
        ("", {}, "is empty"),
        ("agent", {"environment": ["RLFACTORY_NOT_SET"]}, "RLFACTORY_NOT_SET"),
    ],
)
def test_a_command_that_cannot_be_used_is_refused(command: str, options: Any, words: str) -> None:
    assert "RLFACTORY_NOT_SET" not in os.environ
    with pytest.raises(ConfigError, match=words):
        ProgramAgents(command, **options)


def test_a_program_that_is_not_there_fails_the_attempt(tmp_path: Path) -> None:
    played = play(ProgramAgents(str(tmp_path / "missing")))
    assert "cannot start" in played.faults[0].message


def test_the_sample_that_a_program_gets_has_no_answer(tmp_path: Path) -> None:
    code = 'ask("?"); print(json.dumps({"answer": "x", "metadata": {"sample": sys.stdin.read()}}))'
    assert "him" not in json.dumps(dict(play(program(tmp_path, code)).info))


def test_each_attempt_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beside the program is there, too; what an attempt writes is not seen by the others, and is removed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "facts.txt").write_text("him")
    (tmp_path / "own.py").write_text("fact = open('facts.txt').read()")
    code = """
        from own import fact
        ask("?")
        assert not os.path.exists("notes.txt")
        open("notes.txt", "w").write("mine")
        print(json.dumps({"answer": fact, "metadata": {"folder": os.getcwd()}}))
        """
    program(tmp_path, code)
    agent = ProgramAgents(f"{sys.executable} agent.py")
    played = [play(agent) for _ in range(2)]
    assert [each.answer for each in played] == ["him", "him"]
    folders = {each.info["folder"] for each in played}
    assert len(folders) == 2
    assert not any(map(os.path.exists, folders))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == [
        "agent.py",
        "facts.txt",
        "own.py",
    ]


def test_only_so_many_programs_run_at_once_and_the_others_do_not_become_late(tmp_path: Path) -> None:
    code = """
        folder = os.path.dirname(os.path.realpath(__file__))
        mine = os.path.join(folder, f"{os.getpid()}.running")
        open(mine, "w").close()
        ask("?")
        count = sum(name.endswith(".running") for name in os.listdir(folder))
        os.remove(mine)
        print(json.dumps({"answer": "him", "metadata": {"running": count}}))
        """
    program(tmp_path, code)
    config = AgentConfig(command=f"{sys.executable} {tmp_path / 'agent.py'}", concurrency=2, deadline_s=LONG_S)

    async def run() -> list[Trajectory]:
        player = Player(lambda sample, endpoint: None, config)
        await player.open()
        try:
            models = (TokenModel(CHAT, RecordingSampler(["him"])) for _ in range(6))
            return list(await asyncio.gather(*(player.play(episode(LIMITS, SAMPLE), model) for model in models)))
        finally:
            await player.close()

    played = asyncio.run(run())
    assert [each.answer for each in played] == ["him"] * 6
    assert max(each.info["running"] for each in played) <= 2


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("looking\n<answer>\none\n  two\n</answer>\n", "one\n  two"),
        ("<answer>a</answer>\n<answer>one\ntwo</answer>", "one\ntwo"),
        ("<answer>42</answer>\n", "<answer>42</answer>"),
        ('looking\n{\n  "answer": "one\\ntwo",\n  "metadata": {\n    "n": 1\n  }\n}\n', "one\ntwo"),
        ("{\nnot JSON }", "not JSON }"),
        ("a\n\nlast\n\n", "last"),
        ("\n", None),
    ],
)
def test_an_answer_may_have_several_lines(output: str, answer: str | None) -> None:
    assert read_output(output.encode()).answer == answer


def test_a_fault_shows_the_last_lines_of_standard_error(tmp_path: Path) -> None:
    lines = "".join(f"line {number}\\n" for number in range(12))
    fault = play(program(tmp_path, f'ask("?"); sys.stderr.write("{lines}Node.js v20"); sys.exit(1)')).faults[0]
    assert fault.message == "it exited with status 1: " + "\n".join(
        [*(f"line {number}" for number in range(3, 12)), "Node.js v20"]
    )
    silent = play(program(tmp_path, 'ask("?"); sys.stderr.write("no town")')).faults[0]
    assert silent.message == "it ended without an answer: no town"


def test_trying_an_agent_with_the_template_of_a_model(tmp_path: Path) -> None:
    """The command shows the template's text, and ends with what had no effect in the requests."""
    tiny_tokenizer("qwen3").save_pretrained(tmp_path / "model")
    code = """
        url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
        body = {"messages": [{"role": "user", "content": json.load(sys.stdin)["prompt"]}], "seed": 3}
        headers = {"authorization": "Bearer " + key}
        request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), headers)
        print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
        """
    program(tmp_path, code)
    (tmp_path / "train.jsonl").write_text(json.dumps({"prompt": "Who?", "answer": "him"}))
    asked = ["try", "--agent", f"{sys.executable} {tmp_path / 'agent.py'}", "--data", str(tmp_path / "train.jsonl")]
    done = CliRunner().invoke(agents, [*asked, "data.columns.answer=answer", "--model", str(tmp_path / "model")])
    assert "<|im_start|>assistant" in done.output
    assert done.output.endswith("No faults.\nWithout effect in the requests: seed (1).\n")
