"""Prompts without room for an answer: found before the first is played, left out by name, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from chat_families import make_format
from rlfactory_devkit import TaskBench

from rlfactory_core.chat import ToyChatFormat
from rlfactory_core.engines.model_config import known_positions
from rlfactory_core.errors import DataError
from rlfactory_core.protocols import ChatFormat
from rlfactory_core.tasks.opening import OpenTasks
from rlfactory_core.tasks.room import ENOUGH, CheckedPrompts, check_prompts
from rlfactory_core.tasks.setup import Tasks
from rlfactory_core.types import Sample

TASK = """
from rlfactory_core import Sample, Task, hookimpl, tool

@tool
async def look(where: str) -> str:
    "Look."
    return "a door"

class Walk(Task):
    tools = (look,)

    def samples(self, split):
        return [Sample("0", "Where?", "here")]

@hookimpl
def rlfactory_tasks(register):
    register("walk", Walk)
"""


class Counting(ToyChatFormat):
    """Counts the prompts that are rendered."""

    rendered = 0

    def initial_ids(self, messages, tools):  # type: ignore[no-untyped-def]
        self.rendered += 1
        return super().initial_ids(messages, tools)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaskBench]:
    file = tmp_path_factory.mktemp("task") / "walk.py"
    file.write_text(TASK)
    with TaskBench(str(file), ["rollout.max_tokens=1000"]) as bench:
        yield bench


def opened(bench: TaskBench, chat: ChatFormat) -> OpenTasks:
    tasks = OpenTasks(Tasks({"": bench.setup}))
    tasks.by_name[""] = bench.runtime.use_chat(chat)
    return tasks


def check(bench: TaskBench, sizes: list[int], known: int | None = None) -> tuple[CheckedPrompts, int]:
    chat = Counting()
    samples = [Sample(f"row-{index}", "x" * size, "y") for index, size in enumerate(sizes)]
    return check_prompts(opened(bench, chat), samples, samples[:1], known), chat.rendered


def test_those_without_room_are_left_out_by_name(bench: TaskBench) -> None:
    checked, _ = check(bench, [10, 20, 2000, 30, 990])
    assert [sample.id for sample in checked.train] == ["row-0", "row-1", "row-3"]
    assert (checked.left_out, len(checked.held_out)) == ({"train": ["row-2", "row-4"]}, 1)
    (note,) = checked.notes
    assert "2 of 5 training prompts left out" in note
    assert "'row-2', 'row-4'" in note
    assert "1 tool, and rollout.max_tokens=1000 counts it, too. To mend it, set rollout.max_tokens=4096" in note


@pytest.mark.parametrize(
    ("sizes", "known", "says"),
    [
        ([2000] * 100_000, None, r"^None of the 100,000 training prompts leaves room.*set rollout.max_tokens=4096"),
        ([10, 2000, 2000], None, r"^At most half of the 3 training prompts leaves room"),
        ([400, 500], 300, r"made for 300 positions \(max_position_embeddings\).*take a model"),
    ],
)
def test_a_run_in_which_most_have_none_is_refused(
    bench: TaskBench, sizes: list[int], known: int | None, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        check(bench, sizes, known)


def test_few_prompts_of_many_are_rendered(bench: TaskBench) -> None:
    checked, rendered = check(bench, [100] * 20_000)
    assert (len(checked.train), checked.left_out, checked.notes) == (20_000, {}, [])
    assert rendered < ENOUGH + 10
    checked, rendered = check(bench, [800] * 20_000 + [2000])
    assert checked.left_out == {"train": ["row-20000"]}
    assert rendered < ENOUGH + 10


def test_more_than_the_model_was_made_for_is_said(bench: TaskBench) -> None:
    checked, _ = check(bench, [10, 20], known=600)
    assert "warning: rollout.max_tokens=1000 is more than the 600 positions" in checked.notes[0]


@pytest.mark.parametrize(
    ("config", "known"),
    [
        ({"max_position_embeddings": 40960}, 40960),
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "yarn", "factor": 4.0}}, 131072),
        (
            {
                "max_position_embeddings": 131072,
                "rope_parameters": {
                    "full_attention": {"factor": 4.0, "original_max_position_embeddings": 32768},
                    "sliding_attention": {"rope_theta": 10000.0},
                },
            },
            131072,
        ),
        ({}, None),
        ({"max_position_embeddings": None}, None),
    ],
)
def test_how_long_a_text_a_model_knows(config: dict[str, object], known: int | None) -> None:
    assert known_positions(SimpleNamespace(**config)) == known
    within = SimpleNamespace(get_text_config=lambda: SimpleNamespace(**config))
    assert known_positions(within) == known


def test_arguments_that_the_chat_template_hides_are_said_once(bench: TaskBench) -> None:
    chat = make_format("own_qwen3-coder")  # names a tool, and none of its arguments
    checked = check_prompts(opened(bench, chat), [Sample("a", "?", "y")], [Sample("b", "?", "y")], None)
    (note,) = checked.notes
    assert note.startswith("warning: The model's chat template does not show all of these arguments: look.where")
