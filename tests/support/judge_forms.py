"""One form of each kind, and some that are large or odd."""

from __future__ import annotations

from rlfactory_judge.forms import Form, RankingForm, ScoreForm, TurnScoresForm

TEN = ScoreForm(0, 10)
FORMS: dict[str, tuple[Form, int]] = {
    "many turns": (TurnScoresForm(20, 0, 1), 20),
    "many candidates": (RankingForm(16), 16),
    "score": (TEN, 1),
    "odd scale": (ScoreForm(-1.5, 2.25), 1),
    "turns": (TurnScoresForm(3, 0, 10), 3),
    "ranking": (RankingForm(3), 3),
    "two candidates": (RankingForm(2), 2),
}
