"""Ratings of films under pseudonyms, and a few reviews in public: who rated the same films at about the same time is found.

A. Narayanan, V. Shmatikov: Robust de-anonymization of large sparse datasets. IEEE S&P 2008.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable_aggregator import checks
from deniable_aggregator.attack.linkage import SURE, Linked, judged, of_nothing, of_reports

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_FILMS, _STARS, _WEEKS = 400, 5, 52
_RATED = 25  # films that each person rated
_LIKED = 4  # stars from which on a film is liked
_TASTES = 4  # kinds of people, who like kinds of films
_OFF, _WRONG = 0.3, 0.1  # shares of reviews whose stars or week differ a little, and of those that are of no rating at all
_NEAR = 2  # weeks
_MONTH = 4  # weeks
_PLATFORMS, _VERSIONS, _LANGUAGES = 3, 12, 20


class Ratings(NamedTuple):
    """What people rated. The first three are (people, ratings)."""

    film: Integers
    stars: Integers
    week: Integers
    answer: Integers  # (people,), whether they liked one more film, which they reviewed nowhere
    seen: Integers  # (people,), the week in which they rated it
    segments: Integers  # (people, 3), platform, version and language of their app


def ratings(people: int, rng: np.random.Generator) -> Ratings:
    """Make people up: few films are rated by many, and taste decides what they like."""
    weights = 1 / np.arange(1, _FILMS + 1)
    film = np.argsort(rng.random((people, _FILMS)) ** (1 / weights), axis=1)[:, -_RATED:]
    taste = rng.integers(0, _TASTES, people)
    likes = film % _TASTES == taste[:, None]
    stars = np.clip(np.round(rng.normal(2.7 + 1.5 * likes, 1.0)), 1, _STARS).astype(np.int64) - 1
    sizes = (_PLATFORMS, _VERSIONS, _LANGUAGES)
    segments = np.stack([rng.choice(size, people, p=_falling(size)) for size in sizes], axis=1)
    week, seen = rng.integers(0, _WEEKS, film.shape), rng.integers(0, _WEEKS, people)
    answer = (rng.random(people) < np.where(taste == 0, 0.8, 0.3)).astype(np.int64)
    return Ratings(film, stars, week, answer, seen, segments)


def _falling(size: int) -> Floats:
    weights = 1 / np.arange(1, size + 1) ** 1.5
    return np.asarray(weights / weights.sum())


def attacks(
    *,
    people: int,  # at least 100
    reviews: int,  # in public, of each person, from 1 to 25
    k: int,  # fewest people in a group, at least 2
    epsilon: float | str | Fraction,  # of a report
    rng: np.random.Generator,  # where people come from; the noise of devices is the system's
    advance: Callable[[], object] | None = None,  # called after each person who is looked for
) -> tuple[Linked, ...]:
    """Look for everybody who writes reviews in seven kinds of publication."""
    checks.count("people", people, 100)
    checks.count("k", k, 2)
    checks.count("reviews", reviews)
    table = ratings(people, rng)
    known = _reviews(table, min(reviews, _RATED), rng)
    groups = _groups(table, k)
    raters = _raters(table)
    posteriors, without = np.empty((2, people, 2)), np.empty((2, people, 2))
    sure, sizes, liked = np.zeros(people, bool), np.bincount(groups), np.bincount(groups, table.answer)
    for person in range(people):
        likely = _likelihood(raters, people, *(each[person] for each in known))
        sure[person] = likely.argmax() == person and likely[person] >= SURE * likely.sum()
        posteriors[:, person] = _shares(likely, table.answer), _shares(np.bincount(groups, likely) / sizes, liked / sizes)
        others, is_own = likely.copy(), np.arange(len(sizes)) == groups[person]
        others[person] = 0.0
        fewer, liked_others = sizes - is_own, liked - table.answer[person] * is_own
        in_groups = np.bincount(groups, others) / fewer
        without[:, person] = _shares(others, table.answer), _shares(in_groups, liked_others / fewer)
        if advance:
            advance()
    nobody, platform, weeks = np.zeros(people, bool), table.segments[:, 0], table.seen
    cells = platform * _WEEKS + weeks
    segments = np.ravel_multi_index(tuple(table.segments.T), (_PLATFORMS, _VERSIONS, _LANGUAGES)).astype(np.int64)
    opened = "reports with {}"
    return (
        of_nothing(table.answer, 2, rng),
        judged("ratings under pseudonyms", posteriors[0], without[0], table.answer, sure, rng),
        judged(f"groups of {k} alike", posteriors[1], without[1], table.answer, nobody, rng),
        of_reports(opened.format("the month"), table.answer, weeks // _MONTH, epsilon, 2, rng),
        of_reports(opened.format("week and platform"), table.answer, cells, epsilon, 2, rng),
        of_reports(opened.format("platform, version and language"), table.answer, segments, epsilon, 2, rng),
        of_reports(opened.format("these and the week"), table.answer, segments * _WEEKS + weeks, epsilon, 2, rng),
    )


def _reviews(table: Ratings, reviews: int, rng: np.random.Generator) -> tuple[Integers, Integers, Integers]:
    """Return the films, stars and weeks of public reviews, (people, reviews) each: some differ a little, and some are wrong."""
    people = len(table.answer)
    chosen = np.argsort(rng.random(table.film.shape), axis=1)[:, :reviews]
    film, stars, week = (np.take_along_axis(each, chosen, axis=1) for each in table[:3])
    off = rng.random((2, people, reviews)) < _OFF
    stars = np.clip(stars + off[0] * rng.choice([-1, 1], off[0].shape), 0, _STARS - 1)
    week = np.clip(week + off[1] * rng.integers(-_NEAR, _NEAR + 1, off[1].shape), 0, _WEEKS - 1)
    wrong = rng.random((people, reviews)) < _WRONG
    return np.where(wrong, rng.integers(0, _FILMS, wrong.shape), film), stars, week


def _raters(table: Ratings) -> list[tuple[Integers, Integers, Integers]]:
    """Return, of each film, who rated it, with how many stars, and in which week."""
    rated = [np.nonzero(table.film == film) for film in range(_FILMS)]
    return [(people, table.stars[people, places], table.week[people, places]) for people, places in rated]


def _likelihood(
    raters: Sequence[tuple[Integers, Integers, Integers]], people: int, film: Integers, stars: Integers, week: Integers
) -> Floats:
    """Return how likely the reviews of a person are if each record is theirs, (people,)."""
    likely, by_chance = np.ones(people), _WRONG / (_FILMS * _STARS * _WEEKS)
    for own, star, at in zip(film.tolist(), stars.tolist(), week.tolist(), strict=True):
        records, starred, when = raters[own]
        distance, late = np.abs(starred - star), np.abs(when - at)
        of_stars = np.where(distance == 0, 1 - _OFF, np.where(distance == 1, _OFF / 2, 0.0))
        of_week = np.where(late == 0, 1 - _OFF, 0.0) + np.where(late <= _NEAR, _OFF / (2 * _NEAR + 1), 0.0)
        of_each = np.full(people, by_chance)
        of_each[records] += (1 - _WRONG) * of_stars * of_week / _RATED
        likely *= of_each
    return likely


def _shares(weights: Floats, liked: Floats | Integers) -> tuple[float, float]:
    """Return how likely no and yes are."""
    yes = float(weights @ liked / weights.sum())
    return 1 - yes, yes


def _groups(table: Ratings, k: int) -> Integers:
    """Join people who like the same kinds of films in groups of k or a few more; a group's ratings are published together."""
    people = len(table.answer)
    kinds = np.stack(
        [((table.stars + 1 >= _LIKED) & (table.film % _TASTES == taste)).sum(axis=1) for taste in range(_TASTES)], axis=1
    )
    order = np.lexsort((*(-kinds).T, kinds.argmax(axis=1)))
    groups = np.empty(people, np.int64)
    groups[order] = np.minimum(np.arange(people) // k, people // k - 1)
    return groups
