"""The task miniwob without a browser: which samples there are, what is refused, and what a solver reads."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest
from miniwob_reading import page_text
from rlfactory_benchmarks.miniwob.env import PageReward, PageSuccess
from rlfactory_benchmarks.miniwob.solving import Seen, next_call
from rlfactory_benchmarks.miniwob.task import Miniwob

from rlfactory_core import Message, Sample, Trajectory
from rlfactory_core.errors import ConfigError, UsageError
from rlfactory_core.tiny import call
from rlfactory_core.types import StopReason, ToolCall

PAGE = """You see a page.

Task: Select Ann and click Submit.

Page:
[4] div#boxes
 [5] label "Ann [6] \\"x\\""
  [6] input checkbox#ch0 unchecked
 [7] p.alink.big
  "one"
  [8] span "two"
  "three"
[9] select#s options=["a, b", "c" (selected)] scrolled 3 of 65
[10] circle red at -3,54 size 44x40
[11] input text#t value="a \\"b\\" " placeholder="p" disabled"""


def test_training_and_evaluation_share_no_seed_and_the_first_samples_are_of_different_pages() -> None:
    task = Miniwob({"pages": "click-test, login-user", "train_seeds": 3, "eval_seeds": 2})
    train, held_out = ([*task.samples(split)] for split in ("train", "eval"))
    assert [sample.id for sample in train[:3]] == ["click-test-0", "login-user-0", "click-test-1"]
    assert (len(train), len(held_out)) == (6, 4)
    seeds = [{sample.metadata["seed"] for sample in samples} for samples in (train, held_out)]
    assert not seeds[0] & seeds[1]


def test_pages_of_the_evaluation_can_be_others() -> None:
    task = Miniwob({"pages": "click-test", "eval_pages": "focus-text"})
    assert {sample.slice for sample in task.samples("eval")} == {"focus-text"}
    assert task.has_solution
    assert not Miniwob({"pages": "click-test,chase-circle"}).has_solution


@pytest.mark.skipif(find_spec("miniwob") is None, reason="needs miniwob")
def test_an_unknown_page_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"no page 'click-buton'. Did you mean 'click-button'"):
        Miniwob({"pages": "click-buton"})


def test_a_missing_browser_is_refused_with_what_to_install() -> None:
    with pytest.raises(UsageError, match=r"pip install|no-such-program.*--chromium"):
        Miniwob({"chromium": "no-such-program"}).check(())


def test_an_unfinished_page_counts_as_one_whose_time_is_over() -> None:
    def scores(info: dict[str, float]) -> list[float]:
        played = Trajectory(Sample("a", "a"), 0, (), StopReason.LENGTH, info=info)
        return [asyncio.run(scorer.score(played)).value for scorer in (PageReward(), PageSuccess())]

    assert scores({}) == [-1.0, 0.0]
    assert scores({"miniwob_raw": 0.7}) == [0.7, 0.0]
    assert scores({"miniwob_raw": 1.0}) == [1.0, 1.0]


def test_a_page_is_read_from_its_text() -> None:
    seen = Seen("Select Ann and click Submit.", PAGE.partition("Page:\n")[2])
    assert (seen.refs("label", 'Ann [6] "x"'), seen.refs(text="two"), seen.refs("input (?!checkbox)")) == (
        [5],
        [8],
        [11],
    )
    page = page_text(seen)
    assert page.task == "Select Ann and click Submit."
    label = page.first("label")
    assert label.text == 'Ann [6] "x"'
    assert [each.names for each in page.within(label)] == ["#ch0"]
    assert page.first("p", cls="big").text == "one three"
    assert (page.first("select").text, page.first("select").rest[-14:]) == ("", "scrolled 3 of 65"[-14:])
    assert page.first("circle").rest == " red at -3,54 size 44x40"
    assert (page.first(id="t").value, page.all(cls="bi")) == ('a "b" ', [])


def test_a_rule_goes_on_with_the_page_that_looks_as_before() -> None:
    pages = [Message("user", PAGE), Message("assistant", ""), Message("tool", "The page looks as before.")]
    read = []

    def rule(page: Seen, plans: int) -> list[ToolCall]:
        read.append((page.task, page.refs("div"), plans))
        return [call("click", ref=4)]

    assert next_call("some", pages, {"some": rule}).arguments == {"ref": 4}
    assert read == [("Select Ann and click Submit.", [4], 0), ("Select Ann and click Submit.", [4], 1)]
