"""What a page shows of an experiment: whether each arm has an effect, which effects are excluded, and how that became known."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from deniable.messages.plural import plural
from deniable_aggregator.answer import figures
from deniable_aggregator.answer.difference.sentence import measure_of, of_arm
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
    says: tuple[str, str]  # whether the arm has an effect, parted after its first sentence
    subject: str  # whose difference is drawn
    measure: str  # in which unit
    picture: LooksPicture
    scale: Scale  # of the rows
    rows: tuple[ArmRow, ...]
    p_value: float | None  # of the effect over all values; None if none is found
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
            rows.append(ListedExperiment(id_, declared.metric.description, segment, tuple(view.says[0] for view in views)))
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


def headline(arms: Sequence[ArmView]) -> str:
    """Say first what is found most clearly; or that nothing is, of all arms."""
    effects = [arm for arm in arms if arm.p_value is not None]
    if effects or len(arms) == 1:
        return min(effects or arms, key=lambda arm: arm.p_value or 0).says[0]
    return f"No effect found so far in {len(arms)} arms."


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
        difference = measure_of(row, comparison).difference(look.difference, look.simultaneous)
        return f"{up_to}: {difference} ({between}), {number}"

    return ArmView(
        a=comparison.a.name,
        b=comparison.b.name,
        arm=arm,
        says=figures.first_sentence(of_arm(row, comparison)),
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
        p_value=row.p_holm if row.differs else None,
        verdict=f"{figures.beginning(figures.group(comparison.b.name))} compared with {answer.base}: {course.verdict.says}",
        followed=row.label,
        others=tuple(other.label for other in comparison.differences if other.value is not False and other.label != row.label),
    )


def _rows(answer: ExperimentAnswer, comparison: Comparison, scale: Scale, arm: str, row: ValueDiffering) -> Iterator[ArmRow]:
    sizes = (
        {size.arm: f"{100 * size.share:.3g}%, declared {100 * size.declared:.3g}%" for size in answer.sizes.arms}
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
