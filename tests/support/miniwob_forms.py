"""Rules for pages of MiniWoB with forms, mails, calendars, menus and texts, which `..miniwob.solving` has none for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from miniwob_reading import DataRule, Element, PageText, click, fields_of, filled, ordinal, quoted, submit, type_text
from rlfactory_benchmarks.miniwob.solving import Calls

from rlfactory_core.tiny import call


def _date(page: PageText) -> Sequence[str]:
    """Month, day and year, as they are written."""
    found: Sequence[str] = re.findall(r"(\d+)/(\d+)/(\d+)", page.task)[0]
    return found


def _word(text: str, place: int) -> Sequence[str]:
    return [re.sub(r"[^A-Za-z]", "", text.split()[place])]


def _copied(page: PageText) -> Sequence[str]:
    areas = page.all("textarea")
    return [areas[ordinal(page) if len(areas) > 1 else 0].value]


def _ticket(page: PageText, _: int) -> Calls:
    best = []
    for trip in page.all("div", cls="flight"):
        inside = page.within(trip)
        hours, minutes = re.findall(r"(\d+)h (\d+)m", " ".join(each.text for each in inside))[0]
        button = next(each for each in inside if each.kind == "button")
        price = int(re.findall(r"\$(\d+)", button.text)[0])
        is_price = "cheap" in page.task or "expensive" in page.task
        best.append((price if is_price else 60 * int(hours) + int(minutes), button.ref))
    is_most = "longest" in page.task or "expensive" in page.task
    return [call("click", ref=(max if is_most else min)(best)[1])]


def _flight(page: PageText, plans: int) -> Calls:
    if page.all("div", cls="flight"):
        return _ticket(page, plans)
    fields = fields_of(page)
    if plans < 4:
        name = re.findall(r"from: (.*) to: (.*) on \d", page.task)[0][plans // 2]
        if plans % 2 == 0:
            return [type_text(fields[plans // 2], name)]
        places = [each for each in page.all("div") if each.text.startswith(name) or f"({name})" in each.text]
        return [click(places[0])]
    if plans == 4:
        return [click(fields[2])]
    return _day(page, plans) if not fields[2].value else [click(page.first(id="search"))]


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _day(page: PageText, plans: int) -> Calls:
    """Go to the month of a calendar that is open, and click the day."""
    month, day, _ = map(int, _date(page))
    ahead = month - 1 - _MONTHS.index(page.first("span", cls="ui-datepicker-month").text[:3])
    return [click(page.first("a", str(day) if not ahead else "Next" if ahead > 0 else "Prev"))]


def _picked(page: PageText, plans: int) -> Calls:
    field = page.first(id="datepicker")
    if not plans:
        return [click(field)]
    return [submit(page)] if field.value else _day(page, plans)


def _mail(page: PageText, plans: int) -> Calls:
    sender = re.findall(r"email by (\S+)", page.task)[0].rstrip(".,")
    mail = next((m for m in page.all("div", cls="email-thread") for e in page.within(m) if e.text == sender), None)
    for word, button in (("trash icon", "trash"), ("star icon", "star")):
        if word in page.task and mail:
            return [click(next(each for each in page.within(mail) if each.fits(cls=button)))]
    if mail:
        return [click(page.first("div", sender))]
    if "forward that email" in page.task:
        if plans == 1:
            return [click(page.first(text="Forward"))]
        return [
            type_text(page.first("input"), re.findall(r"email to (\S+?)\.", page.task)[0]),
            click(page.first(id="send-forward")),
        ]
    if plans == 1:
        return [click(page.first(text="Reply"))]
    return [type_text(page.first("textarea"), quoted(page)[0]), click(page.first(id="send-reply"))]


def _dragged(page: PageText, _: int) -> Calls:
    direction = re.findall(r"Drag the \w+ (\w+) then", page.task)[0]
    shape = next(each for each in page.elements if each.kind in ("circle", "rect", "polygon"))
    dx, dy = {"left": (-15, 0), "right": (15, 0), "up": (0, -15), "down": (0, 15)}[direction]
    return [call("drag", ref=shape.ref, dx=dx, dy=dy), submit(page)]


def _scrolled(page: PageText, _: int) -> Calls:
    area = page.first("textarea")
    return [call("scroll", ref=area.ref, pixels=10_000 if "bottom" in page.task else -10_000), submit(page)]


def _marked(page: PageText, _: int) -> Calls:
    texts = page.all("p") or page.all(id="randomText")
    return [click(texts[ordinal(page) if len(texts) > 1 else 0], times=3), submit(page)]


def _cased(page: PageText) -> Sequence[str]:
    return [(str.upper if "upper case" in page.task else str.lower)(quoted(page)[0])]


def _time(page: PageText) -> Sequence[str]:
    hour, minute, half = re.findall(r"(\d+):(\d+) ?([AP])M", page.task.replace("\u202f", " "))[0]
    return [f"{int(hour) % 12 + 12 * (half == 'P'):02}:{minute}"]


def _solved_for_x(page: PageText) -> Sequence[str]:
    left, sign, right, result = re.findall(r"(\S+) ([-+]) (\S+) = (\S+)", page.first(id="math-problem").text)[0]
    value = int(result)
    if sign == "+":
        return [str(value - int(right if left == "x" else left))]
    return [str(value + int(right) if left == "x" else int(left) - value)]


def _movie(page: PageText, _: int) -> Calls:
    genre, director, year = re.findall(r"for (.*) movies directed by (.*) from year (\d+)", page.task)[0]
    named = {"Genre": genre, "Director": director, "Year": year, "Date": year}
    order, before = [], True  # labels stand before their fields, or all behind them
    for each in page.elements:
        label = next((key for key in named if key in each.text and not each.kind.startswith("button")), "")
        if label and each.text != "Movie Search":
            order.append(named[label])
        elif each.kind == "input text" and not order:
            before = False
    assert before or order
    return [*map(type_text, fields_of(page), order), submit(page)]


def _height(page: PageText, _: int) -> Calls:
    height = re.findall("Choose (.*) from the dropdown", page.task)[0]
    return [
        call("select", ref=page.first("select").ref, options=[height]),
        click(page.first("button", quoted(page)[0])),
    ]


def _menu(page: PageText, plans: int) -> Calls:
    names = page.task.removeprefix("Select ").split(">")
    item = page.first("div", names[plans])
    return [click(item) if plans + 1 == len(names) else call("hover", ref=item.ref)]


def _icon_menu(page: PageText, plans: int) -> Calls:
    if not plans:
        return [click(page.first("button"))]
    icon = re.findall(r"\((ui-icon-\S+)\)", page.task)
    found = page.all(cls=icon[0]) if icon else page.all(text=quoted(page)[1])
    return [click(found[0])] if found else [call("hover", ref=page.first(text="Playback").ref)]


def _tree(page: PageText, plans: int) -> Calls:
    (name,) = quoted(page)
    found = page.all("span", name)
    closed = page.all("div", cls="expandable-hitarea")
    return [click((found or closed)[0])]


def _contact(page: PageText, _: int) -> Calls:
    name, what = re.findall(r"Find (\S+) in the contact book and click on their (\w+)", page.task)[0]
    return [click(page.first("a", cls=what) if page.all("h2", name) else page.first("a", ">"))]


def _searched(page: PageText, plans: int) -> Calls:
    (name, _), place = quoted(page), ordinal(page)
    if not plans:
        return [type_text(fields_of(page)[0], name), click(page.first("button"))]
    if plans == 1 and place >= 3:
        return [click(page.first("a", str(place // 3 + 1)))]
    return [click(page.all("a", cls="search-title")[place % 3])]


def _media(page: PageText, user: str, action: str) -> list[Element]:
    """The buttons of an action, in a user's posts."""
    posts = [post for post in page.all("div", cls="media") if any(each.text == user for each in page.within(post))]
    return [each for post in posts for each in page.within(post) if each.fits(cls=action) or each.text == action]


def _tweet(page: PageText, plans: int) -> Calls:
    user, action = re.findall(r'user (\S+), click on the "(.*)" button', page.task)[0]
    if action in ("Reply", "Retweet", "Like"):
        return [click(_media(page, user, action.lower())[0])]
    if not plans:
        return [click(_media(page, user, "more")[0])]
    named = [each for each in page.elements if each.text.startswith(action) and each.kind == "li"]
    return [click(named[0])]


def _posts(page: PageText, _: int) -> Calls:
    action, many, user = re.findall(r'"(\w+)" button on (all|\d+) posts? by (\S+) and', page.task)[0]
    found = _media(page, user, action.lower())
    return [*map(click, found if many == "all" else found[: int(many)]), submit(page)]


def _terminal(page: PageText, plans: int) -> Calls:
    entry = page.first(id="terminal-target")
    if not plans:
        return [type_text(entry, "ls"), call("press", key="Enter")]
    files = page.all("span", cls="output")[-1].text.split()
    end = re.findall(r"extension (\.\S+)", page.task)
    name = next(each for each in files if (each.endswith(end[0]) if end else "." not in each))
    return [type_text(entry, f"rm {name}"), call("press", key="Enter")]


def _food(page: PageText, _: int) -> Calls:
    items = page.all("div", cls="food-item")
    if "one of each item" in page.task:
        names = [name.strip() for name in page.task.partition(":")[2].split(",")]
        chosen = [item for item in items if any(each.text in names for each in page.within(item))]
    else:
        many, kind = re.findall(r"Order (\d+) items that are (\S+)", page.task)[0]
        chosen = [item for item in items if any(each.text == kind for each in page.within(item))][:1] * int(many)
    adds = [next(each for each in page.within(item) if each.fits(cls="add")) for item in chosen]
    return [*map(click, adds), click(page.first("button"))]


def _radio_form(page: PageText, _: int) -> Calls:
    radio, box = (int(each) - 1 for each in re.findall(r"(\d+)(?:st|nd|rd)", page.task))
    return [click(page.all("input radio")[radio]), type_text(fields_of(page)[box], quoted(page)[0]), submit(page)]


def _agreement(page: PageText, plans: int) -> Calls:
    if "cancel button" in page.task:
        return [click(page.first("button", "Cancel"))]
    name, button = quoted(page)
    area = page.first("textarea")
    return [
        call("scroll", ref=area.ref, pixels=10_000),
        type_text(fields_of(page)[0], name),
        click(page.first("button", button)),
    ]


def _login(page: PageText, _: int) -> Calls:
    cancel = page.all(id="popup-cancel")
    if cancel:
        return [click(cancel[0])]
    user, password = quoted(page)
    fields = fields_of(page)
    missing = [type_text(field, text) for field, text in zip(fields, (user, password), strict=True) if not field.value]
    return missing[:1] or [click(page.first(id="subbtn"))]


def _completed(page: PageText, plans: int) -> Calls:
    if not plans:
        return [type_text(fields_of(page)[0], quoted(page)[0])]
    if plans == 1:
        start, *end = quoted(page)
        items = [each for each in page.elements if each.text.startswith(start) and each.kind in ("div", "li")]
        return [click(next(each for each in items if not end or each.text.endswith(end[0])))]
    return [submit(page)]


def _dialog(page: PageText, _: int) -> Calls:
    (label,) = quoted(page)
    return [click(page.first("button", "Close" if label == "x" else label))]


def _blocks(page: PageText) -> Sequence[str]:
    return [str(len(page.all("span", cls="addition-block")))]


def _letters(page: PageText) -> Sequence[str]:
    return ["".join(each.text for each in page.all("span"))]


FORMS: Mapping[str, DataRule] = {
    page: rule
    for pages, rule in (
        ("book-flight book-flight-nodelay", _flight),
        ("buy-ticket", _ticket),
        ("choose-date choose-date-easy choose-date-medium choose-date-nodelay", _picked),
        ("copy-paste copy-paste-2", filled(_copied)),
        ("drag-circle drag-single-shape", _dragged),
        ("email-inbox email-inbox-delete email-inbox-forward email-inbox-important", _mail),
        ("email-inbox-noscroll email-inbox-reply email-inbox-star-reply", _mail),
        ("enter-date", filled(lambda page: ["{2}-{0}-{1}".format(*_date(page))])),
        ("enter-text-2", filled(_cased)),
        ("find-word", filled(lambda page: _word(page.first("p").text, ordinal(page)))),
        ("highlight-text highlight-text-2", _marked),
        ("scroll-text", filled(lambda page: _word(page.first("textarea").value, -1))),
        ("scroll-text-2", _scrolled),
        ("text-transform", filled(_letters)),
        ("visual-addition", filled(_blocks)),
        ("click-dialog click-dialog-2", _dialog),
        ("click-menu", _menu),
        ("click-menu-2", _icon_menu),
        ("enter-time", filled(_time)),
        ("form-sequence-2", _radio_form),
        ("form-sequence-3", _height),
        ("login-user-popup", _login),
        ("multi-layouts multi-orderings", _movie),
        ("navigate-tree", _tree),
        ("order-food", _food),
        ("phone-book", _contact),
        ("search-engine", _searched),
        ("sign-agreement", _agreement),
        ("simple-algebra", filled(_solved_for_x)),
        ("social-media", _tweet),
        ("social-media-all social-media-some", _posts),
        ("terminal", _terminal),
        ("use-autocomplete use-autocomplete-nodelay", _completed),
    )
    for page in pages.split()
}
