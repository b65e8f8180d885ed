"""What a page shows of an experiment: whether each arm has an effect, which effects are excluded, and how that became known."""

from __future__ import annotations

from functools import partial
from math import exp
from typing import TYPE_CHECKING, NamedTuple

from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.difference.sentence import both_sides, measure_of
from deniable_aggregator.answer.figures import distance
from deniable_aggregator.answer.model.fields import LEVEL
from deniable_aggregator.answer.over_time.looks import experiment, experiments_of
from deniable_aggregator.answer.select import Published, state_of
from deniable_server.pages import comparison_page
from deniable_server.pages.parts import chart, looks, memo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable.registry import Metric
    from deniable_aggregator.answer.model.comparison import Comparison, ValueDiffering
    from deniable_aggregator.answer.model.experiment import ArmCourse, ExperimentAnswer, Look
    from deniable_server.pages.comparison_page import DifferenceRow
    from deniable_server.pages.parts.chart import Scale
    from deniable_server.pages.parts.looks import LooksPicture
    from deniable_server.service import App


class ArmRow(NamedTuple):
    """An arm in the table."""

    name: str
    estimate: str
    at: float  # place of the estimate on the scale of both arms
    interval: tuple[float, float]  # places of the ends of its interval
    between: str  # its interval, as text
    reports: str
    share: str  # its part of all reports, and the declared one; empty where that is not known


class ArmView(NamedTuple):
    """An arm against the base, on the page."""

    a: str
    b: str
    arm: str
    sentence: str
    detail: str  # what both arms answer
    subject: str  # whose difference is drawn
    measure: str  # in which unit
    picture: LooksPicture
    scale: Scale  # of the rows
    rows: tuple[ArmRow, ...]
    excluded: str  # which effects are
    verdict: str  # whether it is decided, and what it takes if it is not
    # followed, others: labels of the value that is followed, and of those that can be
    followed: str
    others: tuple[str, ...]


class ListedExperiment(NamedTuple):
    """An experiment in the list of all."""

    metric: str
    description: str
    segment: str
    sentences: tuple[str, ...]  # one for each arm


def listed(app: App) -> list[ListedExperiment]:
    """Describe the experiments of an app."""
    rows = []
    for id_, declared in app.highest.items():
        published = Published.of_each(app, app.versions_of(id_))
        for segment in experiments_of(published[0]):
            views = arm_views(answer_of(published, segment), declared.metric)
            rows.append(ListedExperiment(id_, declared.metric.description, segment, tuple(view.sentence for view in views)))
    return rows


def answer_of(
    published: Sequence[Published],
    segment: str | None = None,  # whose values are the arms
    value: str | None = None,  # label of the answer to follow
    level: float = LEVEL,
) -> ExperimentAnswer:
    """Compare the arms at each look, once for each release."""
    app = published[0].app
    about = ("experiment", published[0].declared.metric.id, segment, value, level, state_of(app, published))
    return memo.once(app.store, about, partial(experiment, published, segment, value, level))


def arm_views(answer: ExperimentAnswer, metric: Metric) -> list[ArmView]:
    """Describe each arm."""
    return [_arm(answer, course, metric) for course in answer.arms]


def _planned(answer: ExperimentAnswer, metric: Metric) -> float:
    """Return the place of the planned difference on the picture's axis."""
    if metric.axis is None:
        return 100 * answer.planned
    return answer.planned * metric.axis.reach


def _arm(answer: ExperimentAnswer, course: ArmCourse, metric: Metric) -> ArmView:
    comparison = course.comparison
    view = comparison_page.view(comparison, metric.period)
    rows = dict(zip((row.label for row in comparison.differences), view.rows, strict=True))
    row, text = next(row for row in comparison.differences if row.label == course.label), rows[course.label]
    arm = comparison.b.name.partition("=")[2]
    most = max(row.first_interval[1], row.second_interval[1])
    scale = view.scale if row.value is None else chart.share_scale(most)  # of this answer alone
    is_ratio = comparison.scale == "log"
    unit = 100 if row.value is not None else 1

    def place(difference: float) -> float:
        return unit * distance(difference, comparison.scale)

    def write(look: Look) -> str:
        between = measure_of(row, comparison).signed(look.simultaneous)
        up_to = f"up to {figures.moment(look.last, metric.period)}"
        number = plural(look.first_n + look.second_n, "report")
        difference = comparison_page.signed(look.difference, row, comparison, row.simultaneous)
        return f"{up_to}: {difference} ({between}), {number}"

    return ArmView(
        a=comparison.a.name,
        b=comparison.b.name,
        arm=arm,
        sentence=_sentence(arm, answer.base, row, text),
        detail=_detail(arm, answer.base, both_sides(row, comparison)),
        subject=figures.quoted(row.label) if row.value is not None else f"the {text.label}",
        measure="points" if row.value is not None else "as a factor" if is_ratio else metric.unit,
        picture=looks.picture(
            course.looks,
            _planned(answer, metric),
            metric.period,
            place,
            write,
            is_ratio=is_ratio,
            unfinished=not (comparison.a.closed and comparison.b.closed),
        ),
        scale=scale,
        rows=tuple(_rows(answer, comparison, scale, arm, row)),
        excluded=_excluded(row, comparison),
        verdict=course.verdict.says,
        followed=row.label,
        others=tuple(other.label for other in comparison.differences if other.value is not False and other.label != row.label),
    )


def _sentence(arm: str, base: str, row: ValueDiffering, text: DifferenceRow) -> str:
    if not row.differs:
        return f"No effect of {figures.quoted(arm)} found so far ({text.between})."
    up = text.at > 50  # noqa: PLR2004 - no difference is in the middle
    subject = figures.quoted(row.label) if row.value is not None else f"The {text.label}"
    how = ("more" if up else "less") + " frequent" if row.value is not None else "higher" if up else "lower"
    return f"{subject} is {how} with {figures.quoted(arm)} than with {figures.quoted(base)} ({text.between})."


def _detail(arm: str, base: str, estimates: tuple[str, str]) -> str:
    return f"{estimates[1]} with {figures.quoted(arm)}, {estimates[0]} with {figures.quoted(base)}."


def _excluded(row: ValueDiffering, comparison: Comparison) -> str:
    """Say which effects these reports exclude."""
    low, high = (distance(end, comparison.scale) for end in row.simultaneous)
    if low <= 0 <= high:
        return f"A fall of more than {_size(-low, row, comparison)}, or a rise of more than {_size(high, row, comparison)}"
    least, most = (_size(size, row, comparison) for size in sorted((abs(low), abs(high))))
    return f"An effect of less than {least}, or of more than {most}"


def _size(size: float, row: ValueDiffering, comparison: Comparison) -> str:
    """Write how large an effect is, without its sign."""
    if comparison.scale == "log":
        return f"a factor of {exp(size):.3g}"
    possible = size if row.value is None else figures.possible(size)
    text = comparison_page.signed(possible, row, comparison, row.simultaneous).lstrip("+")
    return f"{text}{'' if row.value is None else ' points'}"


def _rows(answer: ExperimentAnswer, comparison: Comparison, scale: Scale, arm: str, row: ValueDiffering) -> Iterator[ArmRow]:
    sizes = (
        {size.arm: f"{100 * size.share:.4g}%, declared {100 * size.declared:.4g}%" for size in answer.sizes.arms}
        if answer.sizes
        else {}
    )
    measure = measure_of(row, comparison)
    sides = (
        (answer.base, f"{answer.base}, the base", comparison.a.n, row.first, row.first_interval),
        (arm, arm, comparison.b.n, row.second, row.second_interval),
    )
    for name, title, n, estimate, interval in sides:
        at, low, high = (round(scale.across(place), 1) for place in (estimate, *interval))
        text, ends = measure.estimate(estimate, interval), measure.ends(interval)
        yield ArmRow(title, text, at, (low, high), ends, figures.count(n), sizes.get(name, ""))
