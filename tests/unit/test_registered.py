"""What holds for each part that the core registers, also for one that is added: see the table in CONTRIBUTING.md."""

from __future__ import annotations

from typing import Any

import pytest
from chat_families import FAMILIES, TEMPLATES, template
from chat_tokenizers import make_tokenizer
from reporting_examples import make_group

from rlfactory_core.algo.advantages import Credit
from rlfactory_core.algo.methods import METHODS
from rlfactory_core.algo.settings import TrainConfig
from rlfactory_core.chat.select import choose_format
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.reporting.metric_table import METRICS, PLOTS, Metric


def registered(kind: str) -> dict[str, Any]:
    return {item.name: item.factory for item in Registry(()).registered(kind)}


LOSSES, ADVANTAGES, FORMATS = registered("loss_function"), registered("advantage"), registered("chat_format")


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_makes_better_tokens_more_likely_and_worse_ones_less(name: str) -> None:
    torch = pytest.importorskip("torch")
    from rlfactory_core.algo.losses import Clip, Tokens

    old = torch.tensor([-1.0, -2.0, -0.5, -3.0])
    logprobs = old.clone().requires_grad_()
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    found = LOSSES[name](Tokens(logprobs, old, advantages, torch.tensor([0, 0, 1, 1])), Clip(0.2, 0.28))
    assert found.loss.shape == (4,)
    (gradient,) = torch.autograd.grad(found.loss.sum(), [logprobs])
    assert (gradient.sign() == -advantages).all()


@pytest.mark.parametrize("name", ADVANTAGES)
def test_an_advantage_is_nothing_for_equal_attempts_and_more_for_a_better_one(name: str) -> None:
    def of(rewards: list[float]) -> list[list[float]]:
        return ADVANTAGES[name](make_group(rewards).trajectories, Credit())

    assert all(value == 0.0 for attempt in of([0.5, 0.5]) for value in attempt)
    better, worse = of([1.0, 0.0])
    assert sum(better) > sum(worse)


@pytest.mark.parametrize("name", FORMATS)
def test_a_chat_format_proves_itself_on_a_template_that_it_knows(name: str) -> None:
    pytest.importorskip("transformers")
    factory = FORMATS[name]
    known = (each for _, each in TEMPLATES if each.startswith("own_"))
    fitting = next(each for each in known if factory.matches(template(each)))
    kind = next(family.kind for family in FAMILIES if fitting in family.templates)
    choose_format({name: factory}, make_tokenizer(template(fitting), kind)).prove()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_loss_of_its_name_and_sets_keys_of_the_training(name: str) -> None:
    assert name in LOSSES
    assert METHODS[name].train.keys() <= TrainConfig.model_fields.keys()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_has_a_chart_that_is_there(metric: Metric) -> None:
    assert not metric.chart or metric.chart in {plot.title for plot in PLOTS}
