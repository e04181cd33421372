"""The reward `math`: values count, units too, and nothing that a policy writes keeps it busy for long."""

from __future__ import annotations

import asyncio
import logging

import pytest
from reward_examples import trajectory

from rlfactory_core.rewards.maths.finding import final_answer
from rlfactory_core.rewards.maths.processes import Comparers
from rlfactory_core.types import Message, Sample

pytest.importorskip("math_verify")

RIGHT = r"""
\frac{1}{2}|0.5  \frac{1}{2}|1/2  \frac{1}{2}|50\%  -\frac{3}{4}|\frac{-3}{4}  1{,}234|1234  10,000|10\,000  72|\$72
\sqrt{8}|2\sqrt{2}  \frac{\sqrt{3}}{3}|\frac{1}{\sqrt{3}}  2\pi|2*pi  x^2+2x+1|(x+1)^2  5|x=5  (2,3)|\left(2,3\right)
\{1,2,3\}|\{3,1,2\}  1,-1|-1,1  x>3|3<x  5\text{_cm}|5_cm  5_kg|5\text{_kilograms}  10\text{_inches}|10  90^\circ|90
5_apples|5_apple  50\text{_square_meters}|50\text{_m}^2  2^{10}|1024  6.02\times10^{23}|6.02e23  \text{(B)}|B  3ab|3ba
75\%|75  0.\overline{3}|\frac{1}{3}  \begin{pmatrix}1&2\\3&4\end{pmatrix}|\begin{bmatrix}1&2\\_3&4\end{bmatrix}
"""
WRONG = r"""
\frac{1}{2}|2  \frac{1}{2}|12  \frac{1}{3}|0.33  \frac{a}{bc}|\frac{ab}{c}  \frac{1}{23}|\frac{12}{3}  x^{2y}|x^2y
2^{10}|210  1,234|1,_234  -5|5  5_cm|5_km  5\text{_m}^2|5\text{_m}  6\pi\text{_cm}^3|6\pi\text{_cm}^2
\$5|5\text{_cm}  5_apples|5_oranges  0.25|25
\pi|3.14  2\sqrt{2}|2\sqrt{3}  x=5|y=5  (2,3)|(3,2)  (2,3)|[2,3]  (2,3)|\{2,3\}  [0,1)|[0,1]  1,2,3|1,2  \pm2|2
x>3|x\geq3  90^\circ|90\%  3+4i|3-4i  \text{(A)}|A,_B  C|A,_C  11_2|11  11_2|11_3  3ab|3  2xy|2x  7|x  12|1_or_12
"""
LONG = "9^{9^{9^{9}}}"  # without a limit, it computes until the memory is full


def pairs(text: str) -> list[tuple[str, str]]:
    return [tuple(pair.replace("_", " ").replace("11 ", "11_").split("|")) for pair in text.split()]  # type: ignore[misc]


@pytest.mark.slow
def test_values_and_units_are_compared_in_processes_that_end() -> None:
    async def work() -> list[tuple[str, str, bool]]:
        comparers = Comparers(2, 1)
        try:
            asked = [(pair, wanted) for text, wanted in ((RIGHT, True), (WRONG, False)) for pair in pairs(text)]
            asked += [(("7", "(" * 1900), False), (("7", LONG), False)]
            found = await asyncio.gather(*(comparers.compare([gold], answer) for (gold, answer), _ in asked))
            assert "too long" in found[-1].why
            return [
                (*pair, one.same) for (pair, wanted), one in zip(asked, found, strict=True) if one.same is not wanted
            ]
        finally:
            await comparers.close()

    assert asyncio.run(work()) == []


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1}, no, \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"<answer>It is \boxed{2}</answer>", "2"),
        ("<answer> x = 2 </answer> as <answer>", "x = 2"),
        ("Half of 4 is 2.\n#### 1,234\n", "1,234"),
        (r"<answer>3</answer> or \boxed{4}", "4"),
        (r"\boxed{\{1, 2\}} \boxed{3", r"\{1, 2\}"),
        (r"\fbox {5}", "5"),
        ("It is 5.", None),
        (r"\boxed{" * 20_000, None),  # quadratic time would take minutes
    ],
)
def test_the_last_complete_mark_holds_the_answer(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@pytest.mark.slow
def test_the_reward_reads_the_answer_and_whole_solutions_as_gold(caplog: pytest.LogCaptureFixture) -> None:
    from rlfactory_core.rewards.maths.scorer import Math

    reward = Math(cpu_s=1, processes=1)
    samples = [
        Sample("a", (Message("user", "?"),), answer=r"So \boxed{\frac{"),
        Sample("b", (), answer="It is\n#### 2"),
    ]
    with caplog.at_level(logging.WARNING):
        reward.check_samples(samples)
    assert [record.getMessage()[:44] for record in caplog.records] == ["math: 1 of 2 different gold answers cannot b"]

    async def work() -> list[bool | None]:
        await reward.open(None)
        try:
            said = (r"\boxed{2.0}", "2", "<answer>3</answer>")
            return [(await reward.verify(trajectory(text, answer="It is\n#### 2"))).passed for text in said]
        finally:
            await reward.close()

    assert asyncio.run(work()) == [True, False, False]
