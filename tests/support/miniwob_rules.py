"""Rules for the pages of MiniWoB that `rlfactory_benchmarks.miniwob.solving` has none for: what its tools can do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from miniwob_forms import FORMS
from miniwob_reading import TEXT, Element, PageText, click, fields_of, ordinal, quoted, reading, submit, type_text
from rlfactory_benchmarks.miniwob.solving import Calls, Rule

from rlfactory_core.tiny import call


def _marks(each: Element) -> str:
    """What is neither text nor place, such as a colour."""
    return re.sub(f"{TEXT}| at .*", "", each.rest).strip()


def _number(page: PageText) -> int:
    return int(re.findall(r"-?\d+", page.task)[0])


def _generated(page: PageText, _: int) -> Calls:
    shown = page.first(id="display-number").text
    number = int(shown) if shown.isdigit() else None
    tests: Mapping[str, Callable[[int], bool]] = {
        "less": lambda n: n < _number(page),
        "greater": lambda n: n > _number(page),
        "odd": lambda n: n % 2 == 1,
        "even": lambda n: n % 2 == 0,
    }
    fits = number is not None and next(test for word, test in tests.items() if word in page.task)(number)
    return [submit(page) if fits else click(page.first("button", "Generate"))]


def _guess(page: PageText, plans: int) -> Calls:
    """5, then 2 or 8, then by one: each answer repeats the last guess."""
    said = page.all(id="lower") + page.all(id="higher")
    last = int(re.findall(r"\d+", " ".join(each.text for each in page.within(said[0])))[0]) if said else 5
    step = (0, 3, 1)[min(plans, 2)]
    guess = last - step if page.all(id="lower") else last + step
    return [type_text(fields_of(page)[0], str(guess)), submit(page)]


def _spinner(page: PageText, _: int) -> Calls:
    number = _number(page)
    button = page.first("a", cls="ui-spinner-up" if number > 0 else "ui-spinner-down")
    return [*(click(button) for _ in range(abs(number))), submit(page)]


def _slide(page: PageText, handle: Element, now: str, goal: int) -> Calls:
    by = goal - int(now)
    moved = [call("press", key="ArrowRight" if by > 0 else "ArrowLeft", times=abs(by))] if by else []
    return [click(handle), *moved]


def _slider(page: PageText, plans: int) -> Calls:
    handle, shown = page.first(cls="ui-slider-handle"), page.first(id="val")
    if not plans:
        return [click(handle)]  # which may move it
    by = _number(page) - int(shown.text)
    if by:
        return [call("press", key="ArrowRight" if by > 0 else "ArrowLeft", times=min(100, abs(by)))]
    boxes = page.all("input checkbox")
    return [*([click(boxes[ordinal(page)])] if boxes else []), submit(page)]


def _sliders(page: PageText, plans: int) -> Calls:
    goals = [int(each) for each in re.findall(r"\d+", page.task)]
    if plans == 3:
        return [submit(page)]
    return _slide(page, page.all(cls="ui-slider-handle")[plans], page.first(id=f"val-{plans + 1}").text, goals[plans])


def _sorted_numbers(page: PageText, _: int) -> Calls:
    numbers = [each for each in page.all("div") if re.fullmatch(r"-?\d+", each.text)]
    goal = sorted(numbers, key=lambda each: int(each.text))
    place = next(
        (i for i, (now, wanted) in enumerate(zip(numbers, goal, strict=True)) if now.text != wanted.text), None
    )
    if place is None:
        return [submit(page)]
    return [call("drag", ref=goal[place].ref, to=numbers[place].ref, dy=-4)]


def _moved(page: PageText, _: int) -> Calls:
    """Drag an item of a list to its place."""
    name, where = re.findall(r"Drag (\S+) (.*)\.", page.task)[0]
    items = [each for each in page.all("div") if each.text]
    now = next(i for i, each in enumerate(items) if each.text == name)
    ordinal = re.findall(r"(\d+)(?:st|nd|rd|th)", where)
    ends = {
        "to the top": 0,
        "to the bottom": len(items) - 1,
        "up by one position": now - 1,
        "down by one position": now + 1,
    }
    goal = int(ordinal[0]) - 1 if ordinal else ends[where]
    return [call("drag", ref=items[now].ref, to=items[goal].ref, dy=8 if goal > now else -8)]


_SHAPES = {"rectangle": "rect", "circle": "circle", "triangle": "polygon"}


def _sorted_shapes(page: PageText, _: int) -> Calls:
    """Drag shapes into one box, or each into one of two."""
    wanted = re.findall(r"Drag all (\S+)", page.task)[0]
    boxes = page.all("rect", id="shape-container")
    shapes = [each for each in page.elements if each.kind in _SHAPES.values() and not each.fits(id="shape-container")]

    def fits(shape: Element) -> bool:
        return shape.kind == _SHAPES[wanted[:-1]] if wanted[:-1] in _SHAPES else _marks(shape) == wanted

    goals = [(shape, boxes[0] if fits(shape) else boxes[-1]) for shape in shapes if fits(shape) or len(boxes) > 1]
    return [*(call("drag", ref=shape.ref, to=box.ref) for shape, box in goals), submit(page)]


def _described(page: PageText) -> list[Element]:
    """The figures that a text such as "large red letter" describes."""
    words = re.findall(r"(?:Click on an? |How many )(.*)", page.task)[0].replace(" are there?", "").split()
    figures = [each for each in page.elements if each.kind in ("text", *_SHAPES.values())]

    def fits(each: Element, word: str) -> bool:
        is_large = max(map(int, re.findall(r"size (\d+)x(\d+)", each.rest)[0])) > 15
        kind = "shape" if each.kind != "text" else "digit" if each.text.isdigit() else "letter"
        names = {kind, each.text, "item", _marks(each), "large" if is_large else "small"}
        names |= {name for name, tag in _SHAPES.items() if tag == each.kind}
        return bool(names & {word, word.removesuffix("s")})

    return [each for each in figures if all(fits(each, word) for word in words)]


def _identified(page: PageText, _: int) -> Calls:
    figure = next(each for each in page.elements if each.kind in ("text", *_SHAPES.values()))
    names = {tag: name for name, tag in _SHAPES.items()}
    name = names.get(figure.kind, "number" if figure.text.isdigit() else "letter")
    return [click(page.first("button", name.capitalize()))]


def _shades(page: PageText, _: int) -> Calls:
    place = ("red", "green", "blue").index(re.findall(r"shades of (\w+)", page.task)[0])

    def fits(each: Element) -> bool:
        parts = [int(part) for part in re.findall(r"\d+", _marks(each))]
        return parts[place] == max(parts)

    return [*(click(each) for each in page.all("span") if fits(each)), submit(page)]


def _resized(page: PageText, _: int) -> Calls:
    by = 15 if "larger" in page.task else -15
    handle = page.first(cls="ui-resizable-e" if "width" in page.task else "ui-resizable-s")
    moved = {"dx": by} if "width" in page.task else {"dy": by}
    return [call("drag", ref=handle.ref, **moved), submit(page)]


def _box_in_box(page: PageText, _: int) -> Calls:
    small, large = page.first(id="draggableSmall"), page.first(id="draggableLarge")
    return [call("drag", ref=small.ref, to=large.ref), submit(page)]


def _bought(page: PageText, _: int) -> Calls:
    prices = re.findall(r"\$(\d+\.\d+)", page.task + " " + " ".join(each.text for each in page.all(id="stock-price")))
    if len(prices) > 1 and float(prices[1]) <= float(prices[0]):
        return [click(page.first("button"))]
    return [call("wait", seconds=0.1)]


def _delayed(page: PageText, _: int) -> Calls:
    # Each action takes some time, and so does the click on ONE; the rest is waited for in small steps.
    return [
        click(page.first("button", "ONE")),
        call("wait", seconds=_number(page) - 0.5),
        click(page.first("button", "TWO")),
    ]


_COLOURS = {
    **{"black": "000000", "white": "FFFFFF", "aqua": "00FFFF", "blue": "0000FF", "gray": "808080", "green": "008000"},
    **{"lime": "00FF00", "maroon": "800000", "navy": "000080", "olive": "808000", "purple": "800080", "red": "FF0000"},
    **{"silver": "C0C0C0", "teal": "008080", "yellow": "FFFF00", "pink": "FFC0CB", "magenta": "FF00FF"},
    **{"gold": "FFD700", "orange": "FFA500"},
}


def _picked_colour(page: PageText, _: int) -> Calls:
    name = re.findall(r"Select (\w+) with", page.task)
    parts = re.findall(r"\d+", page.task.partition("(")[2])
    text = _COLOURS[name[0]] if name else "".join(f"{int(part):02X}" for part in parts[:3])
    return [
        type_text(fields_of(page)[0], text),
        *(call("press", key=key) for key in ("Tab", "Enter")),
    ]  # the picker covers Submit


def _counted(page: PageText, _: int) -> Calls:
    return [click(page.first("button", str(len(_described(page)))))]


def _digits(page: PageText, _: int) -> Calls:
    """Once the 1 is clicked, boxes hide the numbers, in their order."""
    return [click((page.all("text", "1") or page.all("rect"))[0])]


def _odd_even(page: PageText, _: int) -> Calls:
    rows = [page.within(row) for row in page.all("div", cls="row")]
    return [*(click(row[2 if int(row[1].text) % 2 == 0 else 0]) for row in rows), submit(page)]


def _color(page: PageText, _: int) -> Calls:
    name = re.findall(r"Click on the (.*) colored box", page.task)[0]
    return [click(next(each for each in page.all("div", cls="color") if _marks(each) == name))]


def _widget(page: PageText, _: int) -> Calls:
    kind = quoted(page)[0]
    return [click(page.first(kind if kind in ("button", "textarea") else f"input {kind}"))]


_RULES = FORMS | {
    page: rule
    for pages, rule in (
        ("ascending-numbers", _digits),
        ("click-color", _color),
        ("click-widget", _widget),
        ("odd-or-even", _odd_even),
        ("grid-coordinate", lambda page, _: [click(page.first("circle", id=re.findall(r"\(.*\)", page.task)[0]))]),
        ("button-delay", _delayed),
        ("click-shades", _shades),
        ("click-shape", lambda page, _: [click(_described(page)[0])]),
        ("count-shape", _counted),
        ("drag-box", _box_in_box),
        ("drag-items", _moved),
        ("drag-shapes drag-shapes-2", _sorted_shapes),
        ("drag-sort-numbers", _sorted_numbers),
        ("form-sequence use-slider", _slider),
        ("generate-number", _generated),
        ("guess-number", _guess),
        ("identify-shape", _identified),
        ("resize-textarea", _resized),
        ("stock-market", _bought),
        ("use-colorwheel use-colorwheel-2", _picked_colour),
        ("use-slider-2", _sliders),
        ("use-spinner", _spinner),
    )
    for page in pages.split()
}
FURTHER: Mapping[str, Rule] = reading(_RULES)
