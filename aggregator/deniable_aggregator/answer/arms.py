"""The arms of an experiment: how many reports each has, beside its declared share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import Meta, Struct

from deniable_aggregator.answer.measurement import Count
from deniable_aggregator.decode.panel import repeats_of
from deniable_aggregator.inference import arm_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.declared import Declared
    from deniable.registry import Registry
    from deniable.wire.report import Stratum
    from deniable_aggregator.publish.release import Release

DIFFER = 0.01
"""Chance of error at which arms are said to have other sizes than declared."""
_DIGITS = 16


class ArmSize(Struct, frozen=True, forbid_unknown_fields=True):
    """An arm."""

    arm: Annotated[str, Meta(description="Name of the arm")]
    n: Annotated[Count, Meta(description="Reports of the arm, over the periods in which all arms are published")]
    share: Annotated[float, Meta(description="The arm's share of all reports")]
    declared: Annotated[float, Meta(description="The share that the registry declares")]


class ArmSizes(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether the arms have as many reports as declared. The test holds however often anybody looks."""

    arms: Annotated[list[ArmSize], Meta(description="Each arm")]
    p_value: Annotated[
        float,
        Meta(description="Chance of sizes at least as far from the declared ones at any look, if devices are drawn as declared"),
    ]
    differ: Annotated[bool, Meta(description="Whether the sizes differ from the declared ones, at 1%")]
    says: Annotated[str, Meta(description="What this means, in words; empty if the sizes do not differ")]


def arm_sizes_of(
    registry: Registry,  # declares the experiment
    declared: Declared,  # a metric with the segment
    released: Mapping[Stratum, Release],  # what was published of it
    segment: str,  # whose values are the arms
) -> ArmSizes | None:
    """Compare the reports of the arms with their split; None if in no period all arms are published."""
    arms = registry.segments[segment]
    split = registry.experiments[segment].shares(arms)
    by_period: dict[str, dict[str, int]] = {}
    for stratum, note in released.items():
        name, _, arm = stratum.segment.partition("=")
        if name == segment and arm in split:
            by_period.setdefault(stratum.period, {})[arm] = note.n
    whole = {period: sizes for period, sizes in sorted(by_period.items()) if len(sizes) == len(arms)}
    if not whole:
        return None
    counts = np.cumsum([[sizes[arm] for arm in arms] for sizes in whole.values()], axis=0).astype(np.float64)
    # A device may report in each period, and others answer as it does: so many reports tell of one draw.
    totals = {period: float(sum(sizes.values())) for period, sizes in whole.items()}
    periods = list(totals)
    draws = [1 + repeats_of(declared.metric, {each: totals[each] for each in periods[: at + 1]}) for at in range(len(periods))]
    found = arm_sizes.p_value(counts / np.array(draws)[:, None], np.array([split[arm] for arm in arms]))
    total = counts[-1].sum()
    sizes = [ArmSize(arm, int(n), float(n / total), split[arm]) for arm, n in zip(arms, counts[-1], strict=True)]
    return ArmSizes(sizes, found, found < DIFFER, _says(sizes) if found < DIFFER else "")


def _says(sizes: list[ArmSize]) -> str:
    digits = next(few for few in range(3, 17) if f"{sizes[0].share:.{few}g}" != f"{sizes[0].declared:.{few}g}" or few == _DIGITS)
    has = _listed([f"{100 * size.share:.{digits}g}%" for size in sizes])
    wants = _listed([f"{100 * size.declared:.{digits}g}%" for size in sizes])
    names = _listed([size.arm for size in sizes])
    return (
        f"The arms {names} have {has} of the reports, declared were {wants}. So fewer devices of one arm report, or the draw is "
        "not as declared. The comparison may mislead."
    )


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
