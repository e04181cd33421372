"""Real input: HotpotQA's questions over Wikipedia passages, through the files a user would bring.

The cases lie outside of the repository (CC BY-SA 4.0, HotpotQA, Yang et al. 2018); without them these tests are
skipped. The model is a Qwen3 of a few million parameters made here, with a tokenizer trained on the corpus: it learns
no more than that an answer can be given and a search be made, which is enough for rewards to differ.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rlfactory_devkit import ScriptedSampler
from runs import Cli, checkpoints, metrics, summary, write_lines

from rlfactory_core import Message
from rlfactory_core.types import Group, Sample, SampledTokens, SamplingParams

pytestmark = pytest.mark.slow

CASES = Path(__file__).parents[3] / "shared" / "cases" / "hotpotqa"
PASSAGE_TOKENS = 80
ARCHITECTURE = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
}


@dataclass(frozen=True)
class Hotpot:
    """The files of a run."""

    corpus: Path
    train: Path  # parquet
    evaluation: Path  # JSONL
    everything: Path  # all questions, JSONL
    model: Path


@pytest.fixture(scope="module")
def hotpot(tmp_path_factory: pytest.TempPathFactory) -> Hotpot:
    if not CASES.is_dir():
        pytest.skip(f"HotpotQA is not there: {CASES} (questions.jsonl and corpus.jsonl)")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path_factory.mktemp("hotpotqa")
    lines = (CASES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [verl_row(index, json.loads(line)) for index, line in enumerate(lines)]
    pq.write_table(pa.Table.from_pylist(rows[:60]), folder / "train.parquet")
    files = [write_lines(folder / name, part) for name, part in (("test.jsonl", rows[60:66]), ("all.jsonl", rows))]
    corpus = CASES / "corpus.jsonl"
    make_model(folder / "model", corpus, rows)
    return Hotpot(corpus, folder / "train.parquet", *files, folder / "model")


def verl_row(index: int, question: dict[str, Any]) -> dict[str, Any]:
    """In the columns of verl and Search-R1."""
    return {
        "data_source": f"hotpotqa_{question['type']}",
        "prompt": [{"role": "user", "content": question["question"]}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": question["answers"]}},
        "extra_info": {"index": index, "split": "train", "supporting_titles": question["supporting_titles"]},
    }


def search_call(query: str) -> str:
    call = json.dumps({"name": "search", "arguments": {"query": query}}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def answer(text: str) -> str:
    return f"<answer> {text} </answer>"


def make_model(folder: Path, corpus: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A Hugging Face folder: shown for some steps that one searches, or answers."""
    from rlfactory_search.task import SearchTask

    from rlfactory_core.chat.families.qwen3 import Qwen3Format
    from rlfactory_core.engines.local.model.loading import write_model
    from rlfactory_core.engines.local.model.policy import RaggedPolicy
    from rlfactory_core.engines.local.tiny.tiny_model import build_model, build_tokenizer
    from rlfactory_core.engines.local.tiny.warmstart import WarmStart
    from rlfactory_core.engines.local.workers import Workers
    from rlfactory_core.reporting.progress import Progress
    from rlfactory_core.tiny import TinyModelRecipe, WarmStartStage

    def vocabulary() -> list[str]:
        return [json.loads(line)["contents"] for line in corpus.open(encoding="utf-8")]

    def demonstrate(rng: random.Random) -> tuple[Message, ...]:
        row = rng.choice(rows)
        said = answer(rng.choice(["yes", "no"])) if rng.random() < 0.5 else search_call("the film")
        return Message("user", row["prompt"][0]["content"]), Message("assistant", said)

    recipe = TinyModelRecipe(
        ARCHITECTURE, vocabulary, 4096, (WarmStartStage(demonstrate, 60, 4),), demonstrate, "", muon_lr=0.01
    )
    tokenizer = build_tokenizer(recipe.vocabulary(), recipe.vocab_size)
    model = build_model(recipe, tokenizer, seed=0)
    assert 2e6 < sum(parameter.numel() for parameter in model.parameters()) < 9e6
    tools = [tool.spec for tool in SearchTask().tools]
    WarmStart(RaggedPolicy(model), recipe, Qwen3Format(tokenizer), tools, Workers(), seed=0).run(Progress())
    write_model(folder, model, tokenizer)


def test_a_run_on_ones_own_model_data_and_corpus(cli: Cli, hotpot: Hotpot, tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome = cli(
        *("run", "--plugin", "search", "--model", hotpot.model, "--data", hotpot.train),
        *("--eval-data", hotpot.evaluation, "--corpus", hotpot.corpus, "--steps", "2", "--out", run),
        *("--top-k", "1", f"tools.max_result_tokens={PASSAGE_TOKENS}", "rollout.max_turns=2"),
        *("rollout.max_turn_tokens=32", "train.prompts_per_step=3", "train.group_size=4", "train.lr=1e-4"),
    )
    assert outcome.code == 0, outcome.err
    rows = metrics(run)
    assert [row["step"] for row in rows] == [1, 2]
    assert sum(row["trained_tokens"] for row in rows) > 0
    assert any(row["grad_norm"] > 0 for row in rows)
    assert sum(row["tool_calls"] for row in rows) > 0
    assert all(row["masked"] == 0 for row in rows)
    for when in ("before", "after"):
        assert 0 <= summary(run)["eval"][when]["exact_match"] <= 1
        assert {"exact_match/hotpotqa_bridge", "exact_match/hotpotqa_comparison"} & summary(run)["eval"][when].keys()
    assert start_weights_moved(hotpot.model, run / "checkpoints" / "latest")

    resumed = cli("run", "--resume", run, "--steps", "3")
    assert resumed.code == 0, resumed.err
    assert [row["step"] for row in metrics(run)] == [1, 2, 3]
    assert checkpoints(run) == ["latest", "step-2", "step-3"]


def start_weights_moved(start: Path, trained: Path) -> bool:
    from safetensors.torch import load_file

    before, after = load_file(start / "model.safetensors"), load_file(trained / "model.safetensors")
    assert before.keys() == after.keys()
    return any(not before[name].equal(after[name]) for name in before)


class ReadingOracle(ScriptedSampler):
    """Searches for each supporting title, and knows the answer only where it has read about them all."""

    def __init__(self, samples: Sequence[Sample], chat: Any) -> None:
        super().__init__(self._say, chat)
        self._samples = {str(index): sample for index, sample in enumerate(samples)}
        self._read = ""

    async def sample(self, ids: Sequence[int], params: SamplingParams, *, session: str) -> SampledTokens:
        self._read = self._chat.decode(ids).partition("<tool_response>")[2]
        return await super().sample(ids, params, session=session)

    def _say(self, session: str, turn: int) -> str:
        sample = self._samples[session.split("/", maxsplit=1)[0]]
        titles = sample.metadata["extra_info"]["supporting_titles"]
        if turn < len(titles):
            return search_call(titles[turn])
        seen = all(f'"{title}"' in self._read for title in titles)
        return answer(sample.answer[0] if seen else "not found")


def play_all(hotpot: Hotpot, *, control: str = "") -> list[Group]:
    """Every question once, through the plugin's own tool and reward."""
    from transformers import AutoTokenizer

    from rlfactory_core.runner import prepare
    from rlfactory_core.runner.making import make_chat
    from rlfactory_core.tasks.opening import open_tasks

    async def play() -> list[Group]:
        given = {"plugin": "search", "model": str(hotpot.model), "data": {"train": hotpot.everything}}
        prepared = prepare(None, [{**given, "task": {"corpus": hotpot.corpus, "top_k": 5}}])
        samples = prepared.tasks.samples("train")
        make_format = make_chat(prepared.config.chat, prepared.registry)
        async with open_tasks(prepared.tasks) as opened:
            opened.use_chat(make_format(AutoTokenizer.from_pretrained(hotpot.model)))
            runtime = opened.only
            oracle = ReadingOracle(samples, runtime.chat)
            manager = runtime.control_manager(control) if control else None
            options = {"attempts": 1, "temperature": 0.0, "seed": 0, "manager": manager}
            return [
                await runtime.play(sample, runtime.model(oracle), session=str(index), **options)  # type: ignore[arg-type]
                for index, sample in enumerate(samples)
            ]

    with ThreadPoolExecutor(1) as thread:  # whether or not the caller's thread has an event loop
        return thread.submit(asyncio.run, play()).result()


def test_an_oracle_that_reads_is_always_right(hotpot: Hotpot) -> None:
    trajectories = [trajectory for group in play_all(hotpot) for trajectory in group.trajectories]
    assert len(trajectories) == 100
    wrong = [t.sample.id for t in trajectories if t.score is None or t.score.components["exact_match"] != 1.0]
    assert wrong == []
    assert all(not t.faults and t.num_tool_calls >= 2 for t in trajectories)


def test_an_oracle_that_finds_nothing_is_always_wrong(hotpot: Hotpot) -> None:
    trajectories = [t for group in play_all(hotpot, control="no_results") for t in group.trajectories]
    assert sum(t.score.components["exact_match"] for t in trajectories if t.score) == 0
