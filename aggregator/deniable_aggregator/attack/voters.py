"""Records of a clinic without names, and a roll of voters with names: who has the same birthday, sex and place is found.

L. Sweeney: k-anonymity: a model for protecting privacy. International Journal of Uncertainty, Fuzziness and Knowledge-Based
Systems 10(5), 2002. A. Machanavajjhala and others: l-diversity: privacy beyond k-anonymity. ACM TKDD 1(1), 2007.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from deniable_aggregator import checks
from deniable_aggregator.attack.linkage import Linked, judged, of_nothing, of_releases, of_reports, totals

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

ANSWERS = 6  # diagnoses
_PLACES, _YEARS, _DAYS = 12, 72, 365
_REGION = 4  # places
_BAND = 12  # years
_USUAL = 0.6  # of people, who have a diagnosis that is usual for their age, apart from chance
_RULED_OUT = 2  # answers that an observer with background knowledge knows to be wrong


class Voters(NamedTuple):
    """People with a name, and what is known of them. All columns are (people,)."""

    place: Integers
    birthday: Integers  # days since the first one
    sex: Integers
    answer: Integers  # the diagnosis, which is in no roll


def voters(
    people: int,  # at least 1
    rng: np.random.Generator,
) -> Voters:
    """Make people up. Places have very different sizes, and diagnoses depend on age."""
    weights = 1 / np.arange(1, _PLACES + 1)
    place = rng.choice(_PLACES, people, p=weights / weights.sum())
    birthday, sex = rng.integers(0, _YEARS * _DAYS, people), rng.integers(0, 2, people)
    # Each age has diagnoses that are usual for it.
    usual = birthday * ANSWERS // (_YEARS * _DAYS)
    answer = np.where(rng.random(people) < _USUAL, usual, rng.integers(0, ANSWERS, people))
    return Voters(place, birthday, sex, answer)


def attacks(
    *,
    people: int,  # at least 100
    k: int,  # fewest records that look alike, at least 2
    epsilon: float | str | Fraction,  # of a report
    rng: np.random.Generator,  # where people come from; the noise of devices is the system's
) -> tuple[Linked, ...]:
    """Look for everybody on the roll in seven kinds of publication."""
    checks.count("people", people, 100)
    checks.count("k", k, 2)
    roll = voters(people, rng)
    exact = _numbered(roll.place, roll.birthday, roll.sex)
    classes = _classes(roll, k)
    groups = _numbered(roll.place // _REGION, roll.birthday // (_BAND * _DAYS), roll.sex)
    reports, releases = "reports with {}", "releases by region, age and sex"
    return (
        of_nothing(roll.answer, ANSWERS, rng),
        _of_records("records without names", roll.answer, exact, rng),
        _of_records(f"{k}-anonymous records", roll.answer, classes, rng),
        _of_records(f"{k}-anonymous, {_RULED_OUT} answers ruled out", roll.answer, classes, rng, _RULED_OUT),
        of_reports(reports.format("region, age and sex"), roll.answer, groups, epsilon, ANSWERS, rng),
        of_reports(reports.format("birthday, place and sex"), roll.answer, exact, epsilon, ANSWERS, rng),
        of_releases(releases, roll.answer, groups, epsilon, ANSWERS, rng),
    )


def _of_records(
    published: str,
    answers: Integers,
    classes: Integers,  # (people,), the records that look alike have one number
    rng: np.random.Generator,
    ruled_out: int = 0,  # answers of which the observer knows that they are not the person's
) -> Linked:
    """Look at the records that look like each person: one of them is theirs."""
    counts = np.zeros((int(classes.max()) + 1, ANSWERS))
    np.add.at(counts, (classes, answers), 1)
    weights = counts[classes]
    others = weights - np.eye(ANSWERS)[answers]
    if ruled_out:
        order = rng.random((len(answers), ANSWERS))
        order[np.arange(len(answers)), answers] = 1.0  # never the true one
        excluded = np.argsort(order, axis=1)[:, :ruled_out]
        for chances in (weights, others):
            np.put_along_axis(chances, excluded, 0.0, axis=1)
    alone = counts.sum(axis=1)[classes] == 1
    # Where all others are ruled out, the totals are left.
    without = np.where(others.any(axis=1, keepdims=True), others, totals(answers, ANSWERS))
    return judged(published, weights / weights.sum(axis=1, keepdims=True), without, answers, alone, rng)


def _classes(roll: Voters, k: int) -> Integers:
    """Split the records into halves, by birthday, place or sex, as long as both halves have k (Mondrian)."""
    # K. LeFevre, D. DeWitt, R. Ramakrishnan: Mondrian multidimensional k-anonymity. ICDE 2006.
    columns = [roll.birthday / (_YEARS * _DAYS), roll.place / _PLACES, roll.sex / 2]
    classes, left, number = np.empty(len(roll.answer), np.int64), [np.arange(len(roll.answer))], 0
    while left:
        records = left.pop()
        for column in sorted(columns, key=lambda values: -float(np.ptp(values[records]))):
            values = column[records]
            low = values <= np.median(values) if np.median(values) < values.max() else values < values.max()
            if k <= low.sum() <= len(records) - k:
                left += [records[low], records[~low]]
                break
        else:
            classes[records], number = number, number + 1
    return classes


def _numbered(*columns: Integers) -> Integers:
    """Return the number of each person's combination."""
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].ravel().astype(np.int64)
