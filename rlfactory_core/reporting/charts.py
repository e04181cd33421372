"""Line charts as inline SVG, without a library or a request; colours are the page's variables (light and dark)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from rlfactory_core.reporting.progress import number_text
from rlfactory_core.utils.display import printable

_WIDTH, _HEIGHT = 560.0, 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 60.0, 14.0, 10.0, 40.0
_Place = Callable[[float, float], tuple[float, float]]  # step and value -> coordinates in the picture
_SMOOTH_FROM = 24  # from this number of points on, a moving mean is drawn over the raw line


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: ``(step, value)`` points, ordered by step. ``smooth`` draws a moving mean if there are many."""

    label: str
    points: Sequence[tuple[float, float]]
    smooth: bool = True
    dots: bool = False  # mark each point, for a few measurements


@dataclass(frozen=True, slots=True)
class Chart:
    """A titled plot; lines without points are left out."""

    title: str
    lines: Sequence[Line]
    note: str = ""  # one line below the title that says what is shown, with its unit
    low: float | None = 0.0  # the lower end of the value axis, such as 0 for shares; None: from the data
    high: float | None = None  # the upper end
    unit: str = ""  # what the value axis counts; empty: the title in lower case
    marks: Sequence[tuple[float, str]] = ()  # steps and what begins there

    @property
    def drawn(self) -> list[Line]:
        return [line for line in self.lines if line.points]

    def html(self) -> str:
        """A ``<figure>``; empty if there is nothing to draw."""
        lines = self.drawn
        if not lines:
            return ""
        legend = ""
        if len(self.lines) > 1:  # also if only one is drawn, to say which
            keys = (f'<span class="key c{i % 6}">{_shown(line.label)}</span>' for i, line in enumerate(lines))
            legend = f'<div class="legend">{"".join(keys)}</div>'
        note = f'<p class="note">{escape(self.note)}</p>' if self.note else ""
        return (
            f'<figure class="chart"><figcaption>{_shown(self.title)}</figcaption>{note}{legend}'
            f'<div class="plot">{self._svg(lines)}<div class="tip" hidden></div></div></figure>'
        )

    def _svg(self, lines: Sequence[Line]) -> str:
        xs = [x for line in lines for x, _ in line.points]
        ys = [y for line in lines for _, y in line.points]
        x_ticks = _ticks(min(xs), max(xs), 6, whole=True)
        y_ticks = _ticks(min(ys) if self.low is None else min(self.low, *ys), self.high or max(ys), 5)
        x_low, x_high = min(xs), max(*xs, min(xs) + 1)
        y_low, y_high = y_ticks[0], max(y_ticks[-1], *ys)

        def place(x: float, y: float) -> tuple[float, float]:
            right = _LEFT + (x - x_low) / (x_high - x_low) * (_WIDTH - _LEFT - _RIGHT)
            down = _HEIGHT - _BOTTOM - (y - y_low) / ((y_high - y_low) or 1) * (_HEIGHT - _TOP - _BOTTOM)
            return round(right, 1), round(down, 1)

        parts = [*_grid(x_ticks, y_ticks, place), *self._axis_labels()]
        for x, begins in self.marks:
            if x_low <= x <= x_high:
                at = place(x, y_low)[0]
                parts.append(f'<line class="mark" x1="{at}" x2="{at}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
                parts.append(f'<text x="{at + 4}" y="{_TOP + 10}">{_shown(begins)}</text>')
        for index, line in enumerate(lines):
            parts += _curve(line, index % 6, place)
        data = [
            {"label": printable(line.label), "points": [[*place(x, y), x, number_text(y)] for x, y in line.points]}
            for line in lines
        ]
        return (
            f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" aria-label="{_shown(self.title)} over steps" '
            f'data-lines="{escape(json.dumps(data, separators=(",", ":")))}">{"".join(parts)}'
            f'<line class="rule" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" visibility="hidden"/></svg>'
        )

    def _axis_labels(self) -> list[str]:
        middle = (_TOP + _HEIGHT - _BOTTOM) / 2
        unit = self.unit or self.title[:1].lower() + self.title[1:]
        return [
            f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">step</text>',
            f'<text transform="rotate(-90 12 {middle})" x="12" y="{middle}" text-anchor="middle">{_shown(unit)}</text>',
        ]


def _shown(text: str) -> str:
    return escape(printable(text))


def _grid(x_ticks: Sequence[float], y_ticks: Sequence[float], place: _Place) -> list[str]:
    parts = []
    for tick in y_ticks:
        _, y = place(x_ticks[0], tick)
        kind = "axis" if tick == y_ticks[0] else "grid"
        parts.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{y + 3.5}" text-anchor="end">{_tick_text(tick, y_ticks[-1])}</text>')
    for tick in x_ticks:
        x, _ = place(tick, y_ticks[0])
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
    return parts


def _curve(line: Line, colour: int, place: _Place) -> list[str]:
    smoothed = line.smooth and len(line.points) >= _SMOOTH_FROM
    parts = [f'<path class="line c{colour}{" raw" if smoothed else ""}" d="{_path(line.points, place)}"/>']
    if smoothed:
        parts.append(f'<path class="line c{colour}" d="{_path(_moving_mean(line.points), place)}"/>')
    if line.dots or len(line.points) == 1:
        places = (place(x, y) for x, y in line.points)
        parts += [f'<circle class="dot c{colour}" cx="{x}" cy="{y}" r="3.2"/>' for x, y in places]
    return parts


def _path(points: Sequence[tuple[float, float]], place: _Place) -> str:
    return "M" + "L".join("{},{}".format(*place(x, y)) for x, y in points)


def _moving_mean(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Centred, over about a tenth of the points; shorter at the ends."""
    half = max(2, len(points) // 20)
    means = []
    for index, (x, _) in enumerate(points):
        reach = min(half, index, len(points) - 1 - index)
        window = [y for _, y in points[index - reach : index + reach + 1]]
        means.append((x, sum(window) / len(window)))
    return means


def _ticks(low: float, high: float, about: int, whole: bool = False) -> list[float]:
    """Round numbers; without ``whole`` they enclose the range, with it they are integers within it."""
    span = (high - low) or (1.0 if whole or not high else abs(high))
    rough = span / about
    size = 10.0 ** floor(log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    if whole:
        step = max(1.0, float(ceil(step)))
        return [step * index for index in range(ceil(low / step), floor(high / step + 1e-9) + 1)] or [low]
    first, last = floor(low / step + 1e-9), ceil((low + span if high <= low else high) / step - 1e-9)
    return [round(step * index, 10) for index in range(first, last + 1)]


def _tick_text(value: float, largest: float) -> str:
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if largest >= limit and value:
            return f"{value / (1e3 if unit == 'k' else 1e6):g}{unit}"
    return f"{value:g}"
