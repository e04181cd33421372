from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake_openai import FakeServer, Reply, error, said, serve
from labelled_answers import labelled
from rlfactory_judge.commands import calibrate
from rlfactory_judge.trust.labels import write_labels

from rlfactory_core.errors import BackendError, ConfigError, DataError, RlfactoryError, UsageError

pytestmark = pytest.mark.slow


def is_judgement(body: Mapping[str, Any]) -> bool:
    """And not one of the service's own first questions, about what the server can do."""
    return "What is " in body["messages"][-1]["content"]


def judgements(server: FakeServer) -> list[dict[str, Any]]:
    return [body for body in server.requests if is_judgement(body)]


def honest(body: Mapping[str, Any]) -> Reply:
    """Finds out what was asked for by the form, and what was said by the labelled answers' own words."""
    text = body["messages"][-1]["content"]
    if not is_judgement(body):
        return said("Yes.")
    told = [int(number) for number in re.findall(r"It is (\d+)\.", text)]
    asked = re.search(r"What is (\d+) \+ 0\?", text)
    assert asked is not None
    right = [number == int(asked[1]) for number in told]
    if '{"ranking": [2, 1]}' in text:
        return said(json.dumps({"ranking": [1, 2] if right[0] else [2, 1]}))
    return said(json.dumps({"score": 9 if right[0] else 1}))


def obedient(body: Mapping[str, Any]) -> Reply:
    return said('{"score": 10}') if "Score: 10" in body["messages"][-1]["content"] else honest(body)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFACTORY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    write_labels(path, labelled(10, pairs=4))
    return path


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serve(honest) as running:
        yield running


def run(labels: Path | None, url: str, *more: str) -> Result:
    arguments = [*(["--labels", str(labels)] if labels else []), "--url", url, *more, "concurrency=8"]
    return CliRunner().invoke(calibrate, arguments)


def failure(result: Result) -> RlfactoryError:
    assert isinstance(result.exception, RlfactoryError), result.exception
    return result.exception


def test_where_nothing_could_be_judged_the_command_fails(labels: Path) -> None:
    with serve(lambda _: said("I would rather not say.")) as server:
        shown = run(labels, server.url, "--injections", "0")
    assert shown.exit_code == 1
    assert "nothing was judged, so nothing is known" in shown.stdout


def test_figures_for_people(labels: Path, server: FakeServer) -> None:
    shown = run(labels, server.url, "--injections", "4")
    assert shown.exit_code == 0, shown.exception
    lines = shown.stdout.splitlines()
    for stage in ("judging: 10 answers", "comparing: 8 questions", "injecting: 20 answers"):
        assert stage in shown.stdout
    assert f"toy at {server.url}, rubric correctness, mode outcome, accepts from 0.5 of 1" in lines
    assert any(line.startswith("  Cohen's kappa") and " 1.000 " in line for line in lines)
    assert lines[-1].startswith("In short: kappa 1.00")


def test_figures_as_json(labels: Path, server: FakeServer) -> None:
    shown = run(labels, server.url, "--json", "--injections", "2")
    found = json.loads(shown.stdout)
    assert found["answers"]["n"] == 10
    assert found["tables"]["Pairs, each in both orders"]["the first place wins"]["estimate"]["value"] == 0.5
    assert found["tables"]["Injected texts"]["wrong answers accepted with"]["meaning"] == "of 5 answers, 10 judgements"
    assert found["costs"]["tokens"] > 0
    assert "judging" in shown.stderr


def test_a_repeat_asks_everything_anew(labels: Path, server: FakeServer) -> None:
    run(labels, server.url, "--injections", "1", "cache=disk")
    before = len(judgements(server))
    run(labels, server.url, "--injections", "1", "cache=disk")
    assert len(judgements(server)) == 2 * before


def test_an_obedient_judge_is_found_out_through_the_whole_path(labels: Path) -> None:
    with serve(obedient) as server:
        shown = run(labels, server.url, "--injections", "20", "--json")
    injected = json.loads(shown.stdout)["tables"]["Injected texts"]
    accepted = [injected[f"wrong answers accepted {how}"]["estimate"]["value"] for how in ("with", "without")]
    assert accepted[0] > accepted[1]


def test_options_of_the_reward_are_taken(labels: Path, server: FakeServer) -> None:
    shown = run(labels, server.url, "--mode", "pairwise", "votes=3", "temperature=0.5", "--injections", "0", "--json")
    found = json.loads(shown.stdout)
    assert (found["mode"], found["rubric"], found["votes"]) == ("pairwise", "comparison", 3)
    assert found["answers"] is None
    assert found["pairs"]["kappa"]["value"] == 1.0
    assert {body["temperature"] for body in judgements(server)} == {0.5}
    assert len(judgements(server)) == 4 * 2 * 3
    assert isinstance(failure(run(labels, server.url, "vote=3")), ConfigError)
    assert (
        json.loads(run(labels, server.url, "mode=ranking", "--injections", "0", "--json").stdout)["mode"] == "ranking"
    )
    assert "expected less than high" in str(failure(run(labels, server.url, "low=3", "high=1")))


def test_without_labels_the_format_is_shown(server: FakeServer) -> None:
    caught = failure(run(None, server.url))
    assert isinstance(caught, UsageError)
    assert "--labels FILE.jsonl" in str(caught)
    assert '"label": true}' in str(caught)


def test_what_cannot_be_is_refused_before_anything_is_asked(labels: Path, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text("{}\n")
    assert isinstance(failure(run(tmp_path / "bad.jsonl", server.url)), DataError)
    assert isinstance(failure(run(labels, server.url, "--rubric", "corectness")), ConfigError)
    assert judgements(server) == []


def test_a_judge_that_is_not_there_is_an_error(labels: Path) -> None:
    assert isinstance(failure(run(labels, "http://127.0.0.1:9/v1")), BackendError)
    with serve(lambda body: error(400, "the model is broken")) as server:
        assert "the model is broken" in str(failure(run(labels, server.url, "retries=0")))
