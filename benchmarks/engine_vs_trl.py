"""The embedded engine beside TRL's `GRPOTrainer` and Hugging Face's `generate`: the same models on the same work.

    python benchmarks/engine_vs_trl.py            # writes benchmarks/results/engine_vs_trl.md

Both train the search task's warm-started tiny model, and the same model grown to 5 M parameters without a change of
what it computes, on the same prompts: 16 prompts x 8 attempts a step at T = 1, at most 48 tokens a turn and 3 tool
calls, 4 AdamW updates of 32 sequences. One process, one thread; the two take turns, step by step, so that both meet the
same machine. The first step of each is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
from machine import describe, finish, publish, sized
from parts import LARGE, SEED, TINY, grown, local_run, save, search_task, trainer_of, warm_started

from rlfactory_core.algo.prompts import UniformPrompts
from rlfactory_core.engines.local.decoding.decoder import Request, SlotDecoder
from rlfactory_core.engines.local.model.loading import load_pretrained
from rlfactory_core.engines.local.model.policy import RaggedPolicy
from rlfactory_core.types import Sample, SamplingParams

RESULTS = Path(__file__).parent / "results" / "engine_vs_trl.md"
PROMPTS, GROUP, UPDATES = sized((16, 8, 4), (4, 4, 2))
TURN_TOKENS, CALLS, LR = 48, 3, 5e-4
# Of the decoding comparison: rows, tokens that all share, of each row, sampled.
ROWS, PREFIX, OWN, NEW = sized(64, 4), 131, 20, 40
BARS = {"steps": {TINY: 6.0, LARGE: 5.0}, "decoding": {TINY: 3.5, LARGE: 3.5}}


class Tally:
    """What one side did: seconds, sampled and trained tokens of each counted step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.sampled: list[int] = []
        self.context: list[int] = []  # tokens that went through the model in updates

    def row(self, size: str, name: str, ratio: float | None) -> str:
        total = sum(self.seconds)
        cells = [size, name, f"{min(self.seconds):.2f}", f"{median(self.seconds):.2f}"]
        cells += [f"{sum(tokens) / total:,.0f}" for tokens in (self.sampled, self.context)]
        cells += [f"{mean(self.context):,.0f}", "" if ratio is None else f"{ratio:.2f} x"]
        return "| " + " | ".join(cells) + " |"


class Ours:
    """The engine's rollouts and updates, one step a call."""

    def __init__(self, model: Path, scratch: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.tally = Tally()
        self._manager = local_run(
            model,
            scratch,
            rollout={"max_turn_tokens": TURN_TOKENS, "max_tool_calls": CALLS, "max_turns": CALLS + 1},
            train={
                "lr": LR,
                "muon_lr": 0.0,
                "prompts_per_step": PROMPTS,
                "group_size": GROUP,
                "updates_per_step": UPDATES,
            },
        )
        self._step = 0
        loop.run_until_complete(self._open())

    async def _open(self) -> None:
        self.local = await self._manager.__aenter__()
        world = self.local.prompts.train[0].metadata["world"]
        self.results: list[Any] = []
        self.trainer = trainer_of(self.local, self.results, lambda sample: sample.metadata["world"] == world)

    def prompts(self, steps: int) -> list[Sample]:
        """Those of all steps, in order."""
        samples = self.trainer.playing.samples
        schedule = UniformPrompts(samples, PROMPTS, SEED)
        return [samples[index] for step in range(1, steps + 1) for index in schedule.step(step)]

    def tool_text(self, sample: Sample) -> str:
        """What the prompt says of the tool."""
        task = self.local.tasks.only
        text = task.chat.decode(task.chat.initial_ids(sample.messages, task.manager.specs))
        return text.rsplit("<tools>\n", 1)[1].split("\n</tools>")[0]

    def step(self) -> None:
        self._step += 1
        start = time.perf_counter()
        self.loop.run_until_complete(self.trainer.run(self._step, self._step))
        seconds = time.perf_counter() - start
        if self._step == 1:
            return
        result = self.results[-1]
        self.tally.seconds.append(seconds)
        self.tally.sampled.append(sum(t.num_sampled for group in result.groups for t in group.trajectories))
        self.tally.context.append(round(result.metrics["trained_tokens_s"] * result.metrics["update_s"]))

    def close(self) -> None:
        self.loop.run_until_complete(self._manager.__aexit__(None, None, None))


def load_for_trl(model: Path, tool_text: str) -> tuple[Any, Any]:
    """The model and the tokenizer. The tool's description is as we render it: TRL's has another order of keys."""
    from trl.chat_template_utils import qwen3_template

    loaded, tokenizer = load_pretrained(str(model), torch.device("cpu"), torch.float32)
    tokenizer.response_template = qwen3_template
    tokenizer.chat_template = tokenizer.chat_template.replace("(tool | tojson)", json.dumps(tool_text))
    return loaded, tokenizer


def grpo_config(scratch: Path, steps: int) -> Any:
    """Our settings, in TRL's words."""
    from trl import GRPOConfig

    return GRPOConfig(
        output_dir=str(scratch / "trl"),
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=PROMPTS * GROUP // UPDATES,
        gradient_accumulation_steps=1,
        steps_per_generation=UPDATES,
        num_generations=GROUP,
        shuffle_dataset=False,
        max_completion_length=512 - PREFIX,
        generation_kwargs={"max_new_tokens": TURN_TOKENS},
        max_tool_calling_iterations=CALLS,
        temperature=1.0,
        learning_rate=LR,
        lr_scheduler_type="constant",
        epsilon=0.2,
        epsilon_high=0.28,
        beta=0.0,
        loss_type="dapo",
        max_steps=UPDATES * steps,
        save_strategy="no",
        report_to="none",
        logging_steps=10_000,
        disable_tqdm=True,
    )


def check_same_prompt(first: Sequence[int], ours: Ours, tokenizer: Any) -> None:
    """Stop where TRL's first prompt is not ours, since the two would not do the same work."""
    ours_first = ours.results[0].groups[0].trajectories[0].turns[0].context_ids
    if tuple(first) != ours_first:
        texts = [tokenizer.decode(list(ids)) for ids in (first, ours_first)]
        raise SystemExit("TRL's first prompt is not ours, so the two would not do the same work:\n" + "\n".join(texts))


def clock(ours: Ours, tally: Tally, counts: dict[str, int]) -> Any:
    """A callback that makes a step of ours before each step of TRL's, and times TRL's."""
    import transformers

    class Clock(transformers.TrainerCallback):
        """Four of TRL's steps, an update each, are one of ours."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % UPDATES == 0:
                ours.step()
                counts.update(sampled=0, context=0)
                self.start = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step % UPDATES == 0 and state.global_step > UPDATES:
                tally.seconds.append(time.perf_counter() - self.start)
                tally.sampled.append(counts["sampled"])
                tally.context.append(counts["context"])

    return Clock()


def run_trl(model: Path, scratch: Path, ours: Ours, steps: int) -> Tally:
    """Train with TRL; one step of ours before each of its steps."""
    import transformers
    from datasets import Dataset
    from trl import GRPOTrainer

    transformers.logging.set_verbosity_error()
    task, tally = search_task(), Tally()
    samples = ours.prompts(steps)
    loaded, tokenizer = load_for_trl(model, ours.tool_text(samples[0]))
    world = task.world(samples[0].metadata["world"])

    def search(query: str) -> str:
        """Search the corpus.

        Args:
            query: what to look for.
        """
        return task._worlds.answer(world, query)

    def reward(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        last = [messages[-1].get("content") or "" for messages in completions]
        tally.answered = [f"<answer> {right} </answer>" in text for text, right in zip(last, answer, strict=True)]
        return [float(right) + 0.1 * ("</answer>" in text) for right, text in zip(tally.answered, last, strict=True)]

    counts = {"sampled": 0, "context": 0}

    class Counting(GRPOTrainer):
        def _generate(self, prompts: Any, *rest: Any, **named: Any) -> Any:
            answer = super()._generate(prompts, *rest, **named)
            prompt_ids, completion_ids, tool_mask = answer[:3]
            counts["sampled"] = sum(map(sum, tool_mask)) if tool_mask else sum(map(len, completion_ids))
            counts["context"] = sum(map(len, prompt_ids)) + sum(map(len, completion_ids))
            first_prompt.append(prompt_ids[0])
            return answer

    first_prompt: list[list[int]] = []
    rows = [{"prompt": [{"role": "user", "content": s.prompt}], "answer": s.answer} for s in samples]
    trainer = Counting(
        model=loaded,
        args=grpo_config(scratch, steps),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        reward_funcs=reward,
        tools=[search],
        callbacks=[clock(ours, tally, counts)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    check_same_prompt(first_prompt[0], ours, tokenizer)
    return tally


def compare_steps(size: str, model: Path, steps: int, scratch: Path) -> tuple[list[str], float]:
    loop = asyncio.new_event_loop()
    ours = Ours(model, scratch, loop)
    try:
        theirs = run_trl(model, scratch, ours, steps)
    finally:
        ours.close()
    ratio = median(theirs.seconds) / median(ours.tally.seconds)
    return [ours.tally.row(size, "rlfactory", ratio), theirs.row(size, "TRL", None)], ratio


def compare_decoding(size: str, model: Path, repetitions: int) -> tuple[list[str], float]:
    """40 tokens for each of 64 prompts that share 131 tokens; nothing stops a row early."""
    rng = random.Random(0)
    ours, _ = load_pretrained(str(model), torch.device("cpu"), torch.float32)
    theirs, _ = load_pretrained(str(model), torch.device("cpu"), torch.float32)
    vocabulary = ours.config.vocab_size

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(3, vocabulary) for _ in range(count))

    prefix = ids(PREFIX)
    prompts = [prefix + ids(OWN) for _ in range(ROWS)]
    decoder = SlotDecoder(RaggedPolicy(ours), slots=ROWS, prefix=prefix, stop_token_ids=())

    def decode() -> None:
        decoder.weights_changed(0)  # the prefix is computed anew, as after an update
        params = SamplingParams(NEW)
        finished = decoder.admit([Request(str(row), prompt, params) for row, prompt in enumerate(prompts)])
        while decoder.active:
            finished += decoder.step()
        assert sum(len(tokens.token_ids) for _, tokens in finished) == ROWS * NEW
        for row in range(ROWS):
            decoder.release(str(row))

    inputs = torch.tensor(prompts)
    mask = torch.ones_like(inputs)
    theirs.generation_config.eos_token_id = None
    theirs.generation_config.pad_token_id = 0

    def generate() -> None:
        with torch.inference_mode():
            made = theirs.generate(input_ids=inputs, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=NEW)
        assert made.shape[1] == PREFIX + OWN + NEW

    seconds: dict[Callable[[], None], list[float]] = {decode: [], generate: []}
    decode()
    generate()
    for _ in range(repetitions):
        for work, taken in seconds.items():
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    rate = {work: (ROWS * NEW / min(taken), ROWS * NEW / median(taken)) for work, taken in seconds.items()}
    ratio = rate[decode][1] / rate[generate][1]
    return [
        f"| {size} | rlfactory | {rate[decode][0]:,.0f} | {rate[decode][1]:,.0f} | {ratio:.2f} x |",
        f"| {size} | `generate` | {rate[generate][0]:,.0f} | {rate[generate][1]:,.0f} | |",
    ], ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps", type=int, nargs=2, default=sized([9, 3], [2, 2]), help="of training, at 0.3 M and at 5 M parameters"
    )
    parser.add_argument(
        "--repetitions", type=int, nargs=2, default=sized([15, 5], [1, 1]), help="of decoding, at 0.3 M and at 5 M"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stepping, decoding, ratios = [], [], {"steps": {}, "decoding": {}}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        small, tokenizer = warm_started(clean=False)
        models = {
            TINY: save(scratch / "tiny", small, tokenizer),
            LARGE: save(scratch / "large", grown(small), tokenizer),
        }
        for (size, model), repetitions in zip(models.items(), arguments.repetitions, strict=True):
            rows, ratios["decoding"][size] = compare_decoding(size, model, repetitions)
            decoding += rows
            print("\n".join(rows), file=sys.stderr, flush=True)
        for (size, model), steps in zip(models.items(), arguments.steps, strict=True):
            rows, ratios["steps"][size] = compare_steps(size, model, steps, scratch / size)
            stepping += rows
            print("\n".join(rows), file=sys.stderr, flush=True)
    publish(arguments.out, report(stepping, decoding))
    missed = [(what, size) for what, bars in BARS.items() for size, bar in bars.items() if ratios[what][size] < bar]
    print(f"missed bars: {missed or 'none'}", file=sys.stderr)
    finish(held=not missed)


def report(stepping: list[str], decoding: list[str]) -> str:
    return f"""# The embedded engine beside TRL and `generate`

{PROMPTS} prompts x {GROUP} attempts of the search task's built-in worlds a step, T = 1, at most {TURN_TOKENS} tokens a
turn and {CALLS} tool calls, {UPDATES} AdamW updates of at most {PROMPTS * GROUP // UPDATES} sequences; one process, one
thread each; the two take turns, step by step. Both begin with the same weights and prompts. The 5 M model is the tiny
one grown without a change of what it computes, so both sizes write the same texts. Tokens trained are all that went
through the model in updates, context included: the engine computes the prompt prefix that sequences share once, and
leaves out groups whose attempts all got the same reward. Rates are per second of the whole step. The first step is not
counted. On processors without Intel's name the engine's linear layers go through oneDNN; TRL and `generate` use torch's
own matrix product.

| parameters | | s a step, min | median | sampled tokens/s | trained tokens/s | trained a step | ratio of medians |
|---|---|---|---|---|---|---|---|
{chr(10).join(stepping)}

Decoding alone: {ROWS} prompts of {PREFIX} shared tokens and {OWN} of their own, {NEW} tokens sampled for each, prefill
included.

| parameters | | tokens/s, max | median | ratio of medians |
|---|---|---|---|---|
{chr(10).join(decoding)}

Bars: {BARS["steps"][TINY]:g} x TRL's step rate at {TINY} and {BARS["steps"][LARGE]:g} x at {LARGE},
and {BARS["decoding"][TINY]:g} x `generate` at both sizes. TRL's asynchronous trainer sends weights to a vLLM server
over NCCL, so it needs GPUs.

Made by `python benchmarks/engine_vs_trl.py` on {describe("trl")}, one thread.
"""


if __name__ == "__main__":
    main()
