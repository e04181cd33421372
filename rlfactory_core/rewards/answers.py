"""Compares an answer with the accepted ones: as `exact_match` does, and as SQuAD's script does.

SQuAD's normalisation drops articles and all punctuation. It was made for spans of a text. To it ``-5`` is ``5``,
``3.14`` is ``314``, and an empty answer is ``A``; a policy finds that out. Rewards therefore compare with `exact_match`
and `f1`. `squad_em` and `squad_f1` are for comparisons with published numbers.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from rlfactory_core.rewards.layout import laid_out

_MAX_DIGITS = 400  # of a number that is compared by value; a longer one is compared as a text
_SAME = {  # what other scripts, and the typographers of this one, write for a sign of ASCII
    "-": "\u2010\u2011\u2012\u2013\u2014\u2212",
    "'": "\u2018\u2019\u201a\u2039\u203a",
    '"': "\u00ab\u00bb\u201c\u201d\u201e\u300a\u300b\u300c\u300d\u300e\u300f",
    ".": "\u2026\u3001\u3002",
    "?": "\u00a1\u00bf",
    "[": "\u3008\u3010",
    "]": "\u3009\u3011",
}
_TO_ASCII = {ord(other): sign for sign, others in _SAME.items() for other in others}
_TO_ASCII |= {0xFF01 + i: chr(0x21 + i) for i in range(94)}  # the full-width forms
_QUOTED = re.compile(r"""(?<!\w)(['"`])([^'"`]*)\1(?!\w)""")
_VULGAR_FRACTION = re.compile("([0-9]?)([\u00bc-\u00be\u2150-\u215e])")
_LETTER = r"[^\W\d_]"
_FIGURES = (  # digits with other signs between them: 1,000 1 000 3.14 10:30 5-3
    r"(?: \d{1,3} (?: \ \d{3} )+ (?!\d) | \d+ ) (?: (?: [^\w\s]+ | _+ | \ [-+*/:]\ ) \d+ )*"
)
_SIGNS = re.compile(
    rf"""
    (?<={_LETTER}\ ) (?P<version> \d+\.\d*0 ) (?= \W* $ )           # Python 3.10 is not Python 3.1
  | (?P<number> (?<!\w) (?: [-+] | (?: ^ | (?<= [=<>(]\ ) ) -\  )? \$? (?: \d+\ (?=\d+/\d) )? \.? {_FIGURES}
        (?: e [-+]? \d{{1,3}} )? (?! [^\W_] | [^\w\s]+\d ) (?: \ ?% | \ per\ ?cent\b )? )
  | (?P<kept>
        {_FIGURES}                                                # beside letters: v1.2
      | (?<!{_LETTER}{{2}}) [-/] (?= \d | {_LETTER}\b )           # -x is not x, but a co-op is a coop
      | (?: ^ | (?<= [\s(\[{{=<>,] ) ) - (?= [^\s-] )               # -sqrt(2) is not sqrt(2)
      | (?<=\S\ ) [+*] (?=\ \S)                                    # 2x + 1 is not 2x - 1
      | (?: (?<=\b\w\ ) | (?<=\d\w\ ) ) [-/] (?= \ (?: \w\b | \d ) )
      | (?<=\b{_LETTER}) - (?!\w) | (?<!\w) ! (?=[\w=])            # A- is not A, !x is not x
      | (?: (?<=\d) | (?<=\b{_LETTER}) ) ['"]+ (?!\w) | (?<=\d) !   # 5' is not 5", f'(x) is not f(x), 5! is not 5
      | \[ (?= [^\[\](),]* , [^\[\]()]* \) ) | \( (?= [^\[\](),]* , [^\[\]()]* \] )  # [0, 1) is not (0, 1]
      | (?<=[\w+\#]) [+\#]+ | [=<>^|~%] )                         # C++ is not C, x < y is not x > y
  | [{re.escape(string.punctuation)}]
    """,
    re.VERBOSE,
)
_INTEGER = r"(?:0|[1-9]\d*)"  # digits behind a 0 are a name: 007
_NUMBER = re.compile(
    rf"""
    (?P<sign>[-+]?) \ ? \$?
    (?: (?: (?P<whole>{_INTEGER})\ )? (?P<over>{_INTEGER})\ ?/\ ?(?P<under>{_INTEGER})
      | (?P<decimal> (?: [1-9]\d{{0,2}} (?P<mark>[,'_ ]) \d{{3}} (?: (?P=mark) \d{{3}} )* | {_INTEGER} | (?=\.) )
                     (?: \.\d+ )? (?: e[-+]?\d+ )? ) )
    (?P<percent> \ ?% | \ per\ ?cent )?
    """,
    re.VERBOSE,
)
_ARTICLE = re.compile(r"\b(a|an|the)\b")
_A = re.compile(  # A is an article only at the start, and both only before a word in lower case
    r"(?:^A|(?<![^\s\"'(])a) (?!(?:and|or|to|nor|but)\b)(?=([^\W\d_])[^\W\d_])"
)
_INITIALS = re.compile(rf"(?<=\b{_LETTER}\.) ?(?={_LETTER}\.)")
_ARTICLES = ("an", "the")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def exact_match(prediction: str, references: Iterable[str]) -> float:
    """1.0 if the prediction equals one of the references as `answer_words` reads both, else 0.0.

    An empty prediction equals none.
    """
    return _best(prediction, references, lambda given, wanted: float(given == wanted))


def f1(prediction: str, references: Iterable[str]) -> float:
    """The best F1 of `answer_words` with one of the references, in [0, 1]; 0.0 for an empty prediction."""
    return _best(prediction, references, _bag_f1)


def squad_em(prediction: str, references: Iterable[str]) -> float:
    """1.0 if the prediction equals one of the references after `normalize`, else 0.0.

    The same as ``exact_match_score`` of SQuAD's evaluation script 1.1 (Rajpurkar et al. 2016, arXiv 1606.05250).
    """
    return float(any(normalize(prediction) == normalize(reference) for reference in references))


def squad_f1(prediction: str, references: Iterable[str]) -> float:
    """The best F1 of words after `normalize` with one of the references, in [0, 1].

    The same as ``f1_score`` of SQuAD's evaluation script 1.1: 0.0 if there is no common word, on both sides none left
    included.
    """
    words = normalize(prediction).split()
    return max((_bag_f1(words, normalize(reference).split()) for reference in references), default=0.0)


def answer_words(text: str) -> tuple[str, ...]:
    """The words of a text as `exact_match` compares them; empty only for white space.

    - Case, white space, punctuation and articles before another word are left out. *A* is an article only before a
      word in lower case: ``A, C`` is not ``C``.
    - What `laid_out` writes in one way is the same: ``5km`` and ``5 km``, ``x²`` and ``x^2``, ``(2,3)`` and ``(2, 3)``.
    - Numbers are replaced by their value, with sign, decimals, thousands, exponent, fractions and percent: ``1,000``
      equals ``1 000`` and ``1000.0``, and ``50%`` equals ``1/2``. ``007`` is no number, nor is that of ``Python 3.10``.
    - Other digits with signs between them, such as dates, times and versions, stay as they are written. So do signs
      that change the meaning, as in ``C++`` and ``x - y``.
    - Quotation marks, dashes, full stops and full-width characters of other scripts count as those of ASCII.
    - A text of which nothing is left stays as it is, such as ``!``.
    """
    return _readings(text)[0]


def _readings(text: str) -> list[tuple[str, ...]]:
    """The ways to read a text: without and with *a*, initials as one word and as several; mostly they are equal."""
    plain = laid_out(" ".join(unicodedata.normalize("NFC", text).translate(_TO_ASCII).split()))
    texts = dict.fromkeys(
        _INITIALS.sub(between, article) for article in (_A.sub(_no_article, plain), plain) for between in ("", " ")
    )
    return list(dict.fromkeys(map(_words, texts)))


def _no_article(found: re.Match[str]) -> str:
    return "" if found[1].islower() else found[0]


def _words(text: str) -> tuple[str, ...]:
    plain = unicodedata.normalize("NFC", text.casefold())
    plain = _QUOTED.sub(r"\2", plain) or plain
    words = _SIGNS.sub(_meaning, _VULGAR_FRACTION.sub(_spelled_out, plain)).split()
    last = len(words) - 1
    kept = tuple(word for i, word in enumerate(words) if i == last or word not in _ARTICLES)
    return kept or tuple(plain.split())


def normalize(text: str) -> str:
    """SQuAD's normalisation: lower case, without ASCII punctuation, English articles and repeated white space."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def number(text: str) -> Fraction | None:
    """The value of a text that is one number and nothing else, in the notations that `answer_words` knows; or None."""
    found = _NUMBER.fullmatch(text)
    if not found or len(text) > _MAX_DIGITS:
        return None
    if found["decimal"] is None:
        under = int(found["under"])
        if not under:
            return None
        value = int(found["whole"] or 0) + Fraction(int(found["over"]), under)
    else:
        value = Fraction(re.sub("[,'_ ]", "", found["decimal"]))
    value = -value if found["sign"] == "-" else value
    return value / 100 if found["percent"] else value


def _meaning(found: re.Match[str]) -> str:
    """What a number or a sign is replaced by; nothing for mere punctuation."""
    if found["number"] is not None:
        value = number(found["number"])
        if value is not None:
            return str(value)
        return re.sub(" ?per ?cent", "%", found["number"]).replace(" ", "")
    return found["version"] or (found["kept"] or "").replace(" ", "")


def _spelled_out(found: re.Match[str]) -> str:
    """1 1/2 for 1½."""
    fraction = unicodedata.normalize("NFKC", found[2]).replace("\u2044", "/")
    return f"{found[1]} {fraction}" if found[1] else fraction


def _best(
    prediction: str, references: Iterable[str], measure: Callable[[Sequence[str], Sequence[str]], float]
) -> float:
    given = _readings(prediction)
    if given == [()]:
        return 0.0
    wanted = (reading for reference in references for reading in _readings(reference))
    return max((measure(one, other) for other in wanted for one in given), default=0.0)


def _bag_f1(prediction: Sequence[str], reference: Sequence[str]) -> float:
    common = (Counter(prediction) & Counter(reference)).total()
    return 2.0 * common / (len(prediction) + len(reference)) if common else 0.0
