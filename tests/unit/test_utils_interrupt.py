"""Ctrl-C: the first asks for a stop, the second interrupts."""

from __future__ import annotations

import io
import signal
import threading
from typing import Any

import pytest

from rlfactory_core.utils.interrupt import NOTICE, InterruptedRun, stop_on_interrupt


def test_the_first_asks_and_the_second_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_interrupt(lambda text: None) as button:
        button.armed = True
        signal.raise_signal(signal.SIGINT)
        assert button.interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_it_interrupts_where_no_loop_looks() -> None:
    with stop_on_interrupt(lambda text: None) as button:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not button.interrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_has_the_exit_code_of_its_signal_wherever_it_comes(number: signal.Signals) -> None:
    with stop_on_interrupt(lambda text: None), pytest.raises(InterruptedRun) as caught:
        signal.raise_signal(number)
    assert caught.value.args == (128 + number,)


class Interrupted(io.RawIOBase):
    """A file to which Ctrl-C comes in the midst of the first write."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.written.append(bytes(data).decode().strip())
        if len(self.written) == 1:
            signal.raise_signal(signal.SIGINT)
        return len(data)


def test_it_may_come_in_the_midst_of_a_line() -> None:
    raw, said = Interrupted(), threading.Event()
    with io.TextIOWrapper(io.BufferedWriter(raw)) as stream:

        def say(text: str) -> None:
            print(text, file=stream, flush=True)
            if text == NOTICE:
                said.set()

        with stop_on_interrupt(say) as button:
            button.armed = True
            say("train: 4 steps")
            assert said.wait(60)
        assert raw.written == ["train: 4 steps", NOTICE]


def test_a_part_of_the_run_may_ask_too_and_ctrl_c_still_asks_before_it_interrupts() -> None:
    with stop_on_interrupt(lambda text: None) as button:
        button.request("The judge's tokens are spent.")
        button.request("Again.")
        assert button.requested
        assert button.reason == "The judge's tokens are spent."
        button.armed = True
        signal.raise_signal(signal.SIGINT)
        assert button.interrupted
