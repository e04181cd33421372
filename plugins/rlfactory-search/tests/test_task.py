"""The built-in worlds, the tool over them, the demonstrations, and what the task refuses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from rlfactory_search.demonstrations import Carelessness, Demonstrator, answer_text, call_text, good_query
from rlfactory_search.task import SearchTask
from rlfactory_search.world_search import WorldSearch
from rlfactory_search.worlds import RELATION, Names, World

from rlfactory_core import Sample, ToolContext
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.progress import Progress, StageState
from rlfactory_core.runner import TaskBench, oracle, read, resolve

NAMES = Names.make(0)


def facts(world: World) -> set[str]:
    return set(world.documents)


def test_the_same_seed_gives_the_same_samples_and_another_seed_gives_others() -> None:
    first, again, other = (list(SearchTask(seed=seed).samples("eval")) for seed in (3, 3, 4))
    assert first == again
    assert {sample.prompt for sample in first}.isdisjoint(sample.prompt for sample in other)


def test_evaluation_questions_are_half_two_hop_and_of_a_world_that_training_never_sees() -> None:
    task = SearchTask()
    train, evaluation = list(task.samples("train")), list(task.samples("eval"))
    assert {s.metadata["world"] for s in train}.isdisjoint(s.metadata["world"] for s in evaluation)
    assert sum(s.slice == "two_hop" for s in evaluation) == len(evaluation) / 2
    assert 0.5 < sum(s.slice == "two_hop" for s in train) / len(train) < 0.7
    assert len({s.id for s in train}) == len(train)


def test_worlds_share_names_but_hardly_a_fact() -> None:
    one, two = World.make(NAMES, "train-0"), World.make(NAMES, "eval")
    assert len(facts(one) & facts(two)) < 0.02 * len(facts(one))


def test_looking_things_up_one_by_one_answers_every_question() -> None:
    world, search = World.make(NAMES, "eval"), WorldSearch(top_k=3)
    for question in world.questions:
        subject = question.path[0]
        for relation, found in zip(question.relations, question.path[1:], strict=True):
            fact = RELATION[relation].fact.format(s=subject, o=found)
            assert fact in search.answer(world, good_query(relation, subject))
            subject = found


def test_what_the_task_shows_of_solving_a_question_gets_the_whole_reward() -> None:
    with TaskBench("search") as bench:
        for split in ("train", "eval"):
            samples = bench.samples(split, 20)
            played = bench.play(oracle(bench.task), samples)
            assert [each.reward for each in played] == pytest.approx([bench.reward_bounds[1]] * 20)
            assert [len(each.turns) for each in played] == [3 if s.slice == "two_hop" else 2 for s in samples]


def test_one_search_does_not_answer_two_hop_questions() -> None:
    world, search = World.make(NAMES, "eval"), WorldSearch(top_k=3)
    two_hop = [question for question in world.questions if question.hops == 2][:100]
    told = sum(question.answer in search.answer(world, question.text) for question in two_hop)
    assert told < 20


def test_clean_demonstrations_end_with_the_answer_and_careless_ones_often_do_not() -> None:
    world, search = World.make(NAMES, "demo-0"), WorldSearch(top_k=3)
    rng = random.Random(0)

    def right(care: Carelessness) -> float:
        demonstrator = Demonstrator([world], search.answer, 0.5, care)
        episodes = [(q, demonstrator.episode(world, q, rng)) for q in world.questions[:300]]
        return sum(messages[-1].content == answer_text(q.answer) for q, messages in episodes) / len(episodes)

    assert right(Carelessness()) == 1.0
    assert right(Carelessness(0.7, 0.4, 0.15, 0.1)) < 0.5
    assert right(Carelessness(stop_early=1.0)) < 0.7


def test_the_tool_answers_from_the_samples_own_world_and_says_when_it_finds_nothing() -> None:
    task = SearchTask()
    sample = next(iter(task.samples("eval")))
    context = ToolContext("t", sample)
    subject = sample.messages[0].content.rstrip("?").split()[-2]
    assert "1: " in asyncio.run(task.search(subject, context))
    assert asyncio.run(task.search("zzz qqq", context)) == "No results."
    (control,) = task.controls()["no_results"]
    assert control.spec == task.tools[0].spec
    assert asyncio.run(control.call({"query": subject}, context)) == "No results."


def test_calls_are_written_as_qwen3_writes_them() -> None:
    assert call_text('say "hi"') == (
        '<tool_call>\n{"name": "search", "arguments": {"query": "say \\"hi\\""}}\n</tool_call>'
    )


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"task\.corpis.*corpus"):
        SearchTask({"corpis": "docs.jsonl"})


def test_a_path_is_saved_so_that_a_resume_elsewhere_finds_it(
    write_corpus: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus("Mira Tolvan works for Velk.")
    monkeypatch.chdir(corpus.parent)
    config = resolve(Registry(), read(None, ["plugin=search", f"task.corpus={corpus.name}", "task.top_k=5"])).config
    assert config.task == {"corpus": str(corpus), "top_k": 5}


def test_data_of_ones_own_needs_a_corpus() -> None:
    with pytest.raises(UsageError, match="--corpus"):
        SearchTask().check([Sample("q1", "Who?", "me")])


def test_an_index_is_built_under_the_eyes_of_the_run_and_only_once(write_corpus: Callable[..., Path]) -> None:
    corpus = write_corpus("Mira Tolvan works for Velk.", "Velk is based in Tarn.")

    def stages() -> list[tuple[str, int, int | None]]:
        shown = Stages()

        async def opened() -> None:
            task = SearchTask({"corpus": corpus})
            task.progress = shown
            await task.open()
            await task.close()

        asyncio.run(opened())
        shown.close()
        return shown.ended

    assert stages() == [("build the index", 2, 2)]
    assert stages() == []


class Stages(Progress):
    """The stages that ended: name, done and total."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[str, int, int | None]] = []

    def on_end(self, stage: StageState, failed: bool) -> None:
        self.ended.append((stage.name, stage.done, stage.total))
