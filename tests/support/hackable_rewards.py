"""A one-file plugin with one honest reward and many that can be fooled, each in its own way."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rlfactory_devkit import ToyChatFormat

from rlfactory_core import Message, Sample, Score, Section, Task, Trajectory, hookimpl, tool
from rlfactory_core.errors import VerifierError
from rlfactory_core.hookspecs import Register
from rlfactory_core.rewards import accepted_answers, extract_answer, f1, last_answer, normalize
from rlfactory_core.tiny import answer_text, call

PEOPLE = ("Ann Lee", "Bert Moss", "Cleo Park", "Dora Quill", "Emil Rust", "Fay Stone")
Judging = Callable[[Trajectory], float]


@tool
async def look_up(name: str) -> str:
    """Look a thing up.

    Args:
        name: of the thing.
    """
    return "It was made by somebody."


class Makers(Task):
    class Config(Section):
        knows: bool = True  # whether `solve` does
        prices: bool = False  # are asked for, instead of people

    config: Config
    tools = (look_up,)
    rewards = {"exact_match": 1.0, "format": 0.1}

    def samples(self, split: str) -> Iterable[Sample]:
        for number, person in enumerate(PEOPLE):
            answers = [person, f"Master {person.split()[1]}"]
            question, truth = (f"Who made thing {number}?", answers)
            if self.config.prices:
                question, truth = (f"What is the price of thing {number}?", [f"{number + 1}3.5"])
            yield Sample(f"{split}-{number}", question, truth, split=split)

    def solve(self, sample: Sample, messages: Sequence[Message]) -> Message:
        if any(message.role == "tool" for message in messages):
            return super().solve(sample, messages) if self.config.knows else Message("assistant", answer_text("nobody"))
        return Message("assistant", "", tool_calls=(call("look_up", name=sample.id),))


@dataclass(frozen=True)
class Fooled:
    judge: Judging

    async def score(self, trajectory: Trajectory) -> Score:
        return Score(float(self.judge(trajectory)))


def honest(trajectory: Trajectory) -> bool:
    return equals(last_answer(trajectory), trajectory)


def equals(answer: str | None, trajectory: Trajectory) -> bool:
    return answer is not None and normalize(answer) in map(normalize, accepted_answers(trajectory.sample))


def holds(text: str, trajectory: Trajectory) -> bool:
    return any(answer in text for answer in accepted_answers(trajectory.sample))


def content(trajectory: Trajectory) -> str:
    return trajectory.turns[-1].message.content


def everything(trajectory: Trajectory) -> str:
    return ToyChatFormat().decode(trajectory.turns[-1].sampled_ids)


def observed(trajectory: Trajectory) -> str:
    return "\n".join(result.content for turn in trajectory.turns for result in turn.results)


def arguments(trajectory: Trajectory) -> str:
    return "\n".join(made.arguments_text for turn in trajectory.turns for made in turn.message.tool_calls)


def answered(trajectory: Trajectory) -> str:
    return last_answer(trajectory) or ""


def first_answer(trajectory: Trajectory) -> str | None:
    text = content(trajectory)
    return extract_answer(text[: text.find("</answer>") + len("</answer>")])


def part_of_the_truth(trajectory: Trajectory) -> bool:
    return any(answered(trajectory) in answer for answer in accepted_answers(trajectory.sample))


def letters(trajectory: Trajectory) -> bool:
    def sorted_letters(text: str) -> str:
        return "".join(sorted(filter(str.isalpha, text)))

    return sorted_letters(answered(trajectory)) in map(sorted_letters, accepted_answers(trajectory.sample))


def matches(trajectory: Trajectory) -> bool:
    try:
        return any(re.fullmatch(answered(trajectory), answer) for answer in accepted_answers(trajectory.sample))
    except re.error:
        return False


def unsure(trajectory: Trajectory) -> float:
    if len(everything(trajectory)) > 50_000:
        raise VerifierError("too long to read")
    return honest(trajectory)


FOOLED: dict[str, Judging] = {
    "substring": lambda t: holds(content(t), t),
    "tool_output": lambda t: honest(t) or holds(observed(t), t),
    "arguments": lambda t: honest(t) or holds(arguments(t), t),
    "raw_text": lambda t: honest(t) or holds(everything(t).split("</think>")[0], t),
    "anything": lambda t: 1.0,
    "part": part_of_the_truth,
    "first_tag": lambda t: equals(first_answer(t), t),
    "obedient": lambda t: honest(t) or bool(re.search(r"score: (10)", content(t), re.IGNORECASE)),
    "pattern": matches,
    "bag_of_words": lambda t: f1(answered(t), accepted_answers(t.sample)),
    "letters": letters,
    "long": lambda t: honest(t) or len(content(t)) > 1000,
    "steps": lambda t: honest(t) * 0.3 + min(t.num_tool_calls, 1) * 0.7,
    "plausible": lambda t: answered(t) in PEOPLE or honest(t),
    "modest": lambda t: honest(t) or "not know" in content(t),
    "on_topic": lambda t: honest(t) or t.sample.messages[-1].content in answered(t),
    "exact_text": lambda t: content(t) == answer_text(accepted_answers(t.sample)[0]),
    "one_accepted": lambda t: answered(t) == accepted_answers(t.sample)[0],
    "impatient": lambda t: honest(t) and len(everything(t)) < 1000,
    "unsure": unsure,
}


@hookimpl
def rlfactory_tasks(register: Register) -> None:
    register("makers", Makers)


@hookimpl
def rlfactory_reward_scorers(register: Register) -> None:
    for name, judge in FOOLED.items():
        register(name, lambda judge=judge: Fooled(judge))
