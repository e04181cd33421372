"""Worlds of fictional facts about people, companies, cities and countries, with questions that need one or two facts.

Names are made of syllables, so no model can know them. Worlds of one seed share the words in names. Their people,
companies and facts are random.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from rlfactory_core import Sample

ONSETS = ("b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "kr", "tr", "st")
RIMES = ("a", "e", "i", "o", "u", "ai", "or", "an", "el", "in")
BRANCHES = ("Labs", "Works", "Group", "Foods", "Motors")


@dataclass(frozen=True, slots=True)
class Relation:
    """A kind of fact. The texts have the placeholders ``{s}``, the subject, and ``{o}``, the object."""

    name: str
    subject: str  # the kind of the subject
    fact: str
    question: str
    keywords: str  # words of a good query, besides the subject


@dataclass(frozen=True, slots=True)
class Chain:
    """A question that needs two facts. The object of the first is the subject of the second."""

    first: str
    second: str
    question: str


RELATIONS = (
    Relation("employer", "person", "{s} works for {o}.", "Who does {s} work for?", "works for"),
    Relation("birthplace", "person", "{s} was born in {o}.", "Where was {s} born?", "born in"),
    Relation("seat", "company", "{s} is based in {o}.", "Where is {s} based?", "based in"),
    Relation("country", "city", "{s} lies in {o}.", "Where does {s} lie?", "lies in"),
)
RELATION = {relation.name: relation for relation in RELATIONS}
CHAINS = (
    Chain("employer", "seat", "Which city is the employer of {s} based in?"),
    Chain("birthplace", "country", "Which country was {s} born in?"),
    Chain("seat", "country", "Which country is {s} based in?"),
)


@dataclass(frozen=True, slots=True)
class Question:
    """``path`` has the subject, the object of each relation in turn, and so at last the answer."""

    text: str
    relations: tuple[str, ...]
    path: tuple[str, ...]

    @property
    def answer(self) -> str:
        return self.path[-1]

    @property
    def hops(self) -> int:
        return len(self.relations)


@dataclass(frozen=True, slots=True)
class Names:
    """The words in names."""

    first: tuple[str, ...]
    last: tuple[str, ...]
    company: tuple[str, ...]
    city: tuple[str, ...]
    country: tuple[str, ...]

    @classmethod
    def make(cls, seed: int) -> Names:
        rng = random.Random(f"names {seed}")
        used: set[str] = set()

        def words(count: int) -> tuple[str, ...]:
            made: list[str] = []
            while len(made) < count:
                syllables = (rng.choice(ONSETS) + rng.choice(RIMES) for _ in range(rng.randint(2, 3)))
                word = "".join(syllables).capitalize()
                if 4 <= len(word) <= 8 and word not in used:
                    used.add(word)
                    made.append(word)
            return tuple(made)

        return cls(words(40), words(40), words(30), words(40), words(30))

    @property
    def words(self) -> tuple[str, ...]:
        return (*self.first, *self.last, *self.company, *BRANCHES, *self.city, *self.country)


@dataclass(frozen=True, slots=True)
class World:
    """A set of facts, with a document for each and all questions about them."""

    name: str
    documents: tuple[str, ...]
    questions: tuple[Question, ...]

    @classmethod
    def make(cls, names: Names, name: str, *, people: int = 240, companies: int = 60) -> World:
        """Make a world. The same ``names`` and ``name`` give the same world."""
        rng = random.Random(f"world {name} {names.words[0]} {names.words[1]}")
        subjects = {
            "person": [" ".join(pair) for pair in rng.sample(list(product(names.first, names.last)), people)],
            "company": [" ".join(pair) for pair in rng.sample(list(product(names.company, BRANCHES)), companies)],
            "city": list(names.city),
        }
        objects = {
            "employer": subjects["company"],
            "birthplace": subjects["city"],
            "seat": subjects["city"],
            "country": list(names.country),
        }
        facts = {
            (subject, relation.name): rng.choice(objects[relation.name])
            for relation in RELATIONS
            for subject in subjects[relation.subject]
        }
        documents = [RELATION[relation].fact.format(s=s, o=o) for (s, relation), o in facts.items()]
        rng.shuffle(documents)
        questions = [*_one_hop(subjects, facts), *_two_hop(subjects, facts)]
        rng.shuffle(questions)
        return cls(name, tuple(documents), tuple(questions))

    def samples(self, split: str, rng: random.Random, count: int, two_hop: float) -> Iterator[Sample]:
        """``count`` questions. About the share ``two_hop`` of them needs two facts."""
        by_hops = {hops: [q for q in self.questions if q.hops == hops] for hops in (1, 2)}
        for index in range(count):
            question = rng.choice(by_hops[2 if rng.random() < two_hop else 1])
            yield self.sample(question, split, f"{self.name}/{index}")

    def question(self, text: str) -> Question:
        """The question with this text."""
        return next(question for question in self.questions if question.text == text)

    def sample(self, question: Question, split: str, name: str) -> Sample:
        return Sample(
            id=name,
            prompt=question.text,
            answer=question.answer,
            metadata={"world": self.name},
            split=split,
            slice="two_hop" if question.hops == 2 else "one_hop",
        )


def _one_hop(subjects: dict[str, list[str]], facts: dict[tuple[str, str], str]) -> Iterator[Question]:
    for relation in RELATIONS:
        for subject in subjects[relation.subject]:
            path = (subject, facts[subject, relation.name])
            yield Question(relation.question.format(s=subject), (relation.name,), path)


def _two_hop(subjects: dict[str, list[str]], facts: dict[tuple[str, str], str]) -> Iterator[Question]:
    for chain in CHAINS:
        for subject in subjects[RELATION[chain.first].subject]:
            middle = facts[subject, chain.first]
            path = (subject, middle, facts[middle, chain.second])
            yield Question(chain.question.format(s=subject), (chain.first, chain.second), path)
