"""How often a headline is false: it names an answer the most frequent that is not, or leaves one out that is.

    python benchmarks/headlines.py               # all cells, some fifteen minutes; slow ones with a tenth of the runs
    python benchmarks/headlines.py --runs 200 --only grr "pem, found"

Each line is a mechanism, each column a population in which the first answers are tied: there, chance alone decides which is
estimated to be the largest, and whatever a headline says of one of them is false. At the level of 95%, at most 5% may be.
A figure is the greater one of few and of many reports. Cells above 5% by more than three of their errors are marked.

`normal` lines are estimates with errors that are drawn as normal numbers: of equal and of unequal errors (1 to 10), independent,
and as correlated as a whole makes them. `permanent` are devices that keep their responses and report five times. Of `pem` the
answers are those that its search finds, among 65,536: each search takes a quarter of a second of a free core.
`first against second` is a test that the code does not use: it looks only at the second.
"""

from __future__ import annotations

import argparse
import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from deniable import mechanisms
from deniable.mechanisms.texts.prefix import Pem
from deniable_aggregator import decode, tally
from deniable_aggregator.decode.panel import Panel
from deniable_aggregator.decode.pools import hash_lookup
from deniable_aggregator.decode.search.discovery import Discovery, discover
from deniable_aggregator.decode.search.prefix_level import Joint
from deniable_aggregator.decode.sets import options
from deniable_aggregator.decode.sets.options import options_of
from deniable_aggregator.decode.share_difference import difference_variance
from deniable_aggregator.inference.leaders import Leaders
from deniable_aggregator.planning.simulation import Simulation
from deniable_aggregator.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from deniable_aggregator.decode.estimate import Estimate

    Floats = NDArray[np.float64]
    Draw = Callable[[Floats, int, np.random.Generator], tuple[Estimate, Floats]]

LEVEL, MOST = 0.95, 0.05
REPORTS = (300, 20_000)
VISITS = 5  # of a device that keeps its response
POPULATIONS = {
    "2 tied": np.array([0.5, 0.5]),
    "2 of 20": np.array([0.25, 0.25, *[0.5 / 18] * 18]),
    "3 tied": np.full(3, 1 / 3),
    "5 of 20": np.array([*[0.18] * 5, *[0.1 / 15] * 15]),
    "20 tied": np.full(20, 0.05),
    "2 of 100": np.array([*[0.03] * 2, *[0.94 / 98] * 98]),
}
ONE_STEP = (
    *("grr", "oue", "sue", "subset", "local_hash", "hadamard", "general_hadamard"),
    *("pgr", "cms", "hcms", "fast_local_hash", "dbitflip", "rappor"),
)
SLOW = ("fast_local_hash-pool", "cms-pool", "pem")
POOLS = ("fast_local_hash-pool", "cms-pool")
SPARSE = ("grr", "subset", "local_hash", "general_hadamard", "pgr")
"""With few reports at a high epsilon these have few that support a value, so tests that take errors for normal would be false."""
PERMANENT = ("l_grr", "l_osue", "loloha")
EPSILONS = {"1": 1.0, "4": 4.0}


@cache
def listed(name: str, values: int, epsilon: float, **others: float) -> Any:
    """Return a mechanism of a list of values, which is made once."""
    return mechanisms.make(name, domain_size=values, epsilon=epsilon, **others)


@cache
def simulation(name: str, values: int, epsilon: float) -> Simulation:
    """Return what draws its tallies."""
    return Simulation(listed(name, values, epsilon))


def list_estimate(name: str, epsilon: float, shares: Floats, n: int, rng: np.random.Generator) -> tuple[Estimate, Floats]:
    """Estimate a list of answers."""
    base, pool, _ = name.partition("-pool")
    keys = rng.integers(0, 1 << 64, len(shares), np.uint64, endpoint=False).tolist() if pool else None
    mechanism = listed(base, 1 << 64 if pool else len(shares), epsilon)
    drawing = Simulation(mechanism, keys) if pool else simulation(base, len(shares), epsilon)
    return decode.estimate(mechanism, drawing.draw(rng.multinomial(n, shares), rng), keys), shares


def again(name: str, epsilon: float, shares: Floats, n: int, rng: np.random.Generator) -> tuple[Estimate, Floats]:
    """Estimate a list of answers from devices that report five times, without permanent responses."""
    held = rng.multinomial(max(n // VISITS, 20), shares)
    counted = simulation(name, len(shares), epsilon).draw(held, rng)
    for _ in range(VISITS - 1):
        counted = tally.merge(counted, simulation(name, len(shares), epsilon).draw(held, rng))
    return decode.estimate(listed(name, len(shares), epsilon), counted, repeats=VISITS - 1), shares


def permanent(name: str, epsilon: float, shares: Floats, n: int, rng: np.random.Generator) -> tuple[Estimate, Floats]:
    """Estimate a list of answers from devices that keep their responses."""
    mechanism = listed(name, len(shares), epsilon, permanent=2 * epsilon)
    people, layout = max(n // VISITS, 20), mechanism.layout
    held = rng.multinomial(people, shares)
    first, other = map(float, mechanism.permanent_support)
    if name == "l_osue":
        keep, lie = _second(float(mechanism.p), float(mechanism.q), first, other)
        responses = rng.binomial(held, first) + rng.binomial(people - held, other)
        counts = rng.binomial(VISITS * responses, keep) + rng.binomial(VISITS * (people - responses), lie)
        counted = Tally(layout, counts[None, :], np.array([VISITS * people]))
    else:
        width = layout.width
        lie_once = (1 - first) / (width - 1)
        cells = np.zeros((layout.rows, width), np.int64)
        for value, number in enumerate(held.tolist()):
            rows = rng.integers(0, layout.rows, number)
            own = np.array([mechanism.response_key(row, value) for row in range(layout.rows)])[rows]
            shifts = np.where(rng.random(number) < first, 0, rng.integers(1, width, number))
            np.add.at(cells, (rows, (own + shifts) % width), 1)
        true = float(mechanism.p)
        keep = (true - lie_once) / (first - lie_once)
        move = np.full((width, width), (1 - keep) / (width - 1))
        np.fill_diagonal(move, keep)
        counts = sum(rng.multinomial(VISITS * cells[:, each], move[each]) for each in range(width))
        counted = tally.from_cells(layout, np.asarray(counts).ravel())
    return decode.estimate(mechanism, counted, repeats=VISITS - 1, permanent=True), shares


def _second(p: float, q: float, first: float, other: float) -> tuple[float, float]:
    """Return the probabilities that a report has a bit that is in the response, and one that is not."""
    step = (p - q) / (first - other)
    return q - other * step + step, q - other * step


def sets(name: str, epsilon: float, shares: Floats, n: int, rng: np.random.Generator) -> tuple[Estimate, Floats]:
    """Estimate options of a set; it has at most 20."""
    shares = shares[:20]
    mechanism = listed(name, 1 << len(shares), epsilon)
    return options.option_shares(mechanism, options_of(mechanism).draw_sets(n, shares, rng)), shares


def sets_again(name: str, epsilon: float, shares: Floats, n: int, rng: np.random.Generator) -> tuple[Estimate, Floats]:
    """Estimate options from people who report once, as if each reported five times."""
    estimate, shares = sets(name, epsilon, shares, n, rng)
    return Panel(estimate.n, estimate, VISITS - 1), shares


def search(epsilon: float, shares: Floats, n: int, rng: np.random.Generator) -> tuple[Estimate, Floats]:
    """Search for answers; those that are found are compared."""
    mechanism = Pem(domain_size=1 << 16, epsilon=epsilon, start=8)
    values = rng.choice(1 << 16, len(shares), replace=False).tolist()
    held = np.repeat(np.arange(len(values)), rng.multinomial(n, shares))
    rows = rng.integers(mechanism.rows, size=len(held))
    table = [[mechanism.key(level, value) for value in values] for level in range(len(mechanism.lengths))]
    keys = np.array(table, np.uint64)[np.searchsorted(mechanism.first_rows, rows, side="right") - 1, held]
    a, b, c = hash_lookup.multipliers(mechanism.family)[rows].T
    high = (a * (keys >> np.uint64(32)) + b * (keys & np.uint64(0xFFFFFFFF)) + c) >> np.uint64(32)
    cells = (high * np.uint64(mechanism.width) >> np.uint64(32)).astype(np.int64)
    shifts = np.where(rng.random(len(held)) < float(mechanism.p), 0, rng.integers(1, mechanism.width, size=len(held)))
    numbers = rows * mechanism.width + (cells + shifts) % mechanism.width
    counted = tally.from_cells(mechanism.layout, np.bincount(numbers, minlength=mechanism.rows * mechanism.width))
    discovery = discover(mechanism, counted)
    known = dict(zip(values, shares.tolist(), strict=True))
    return discovery, np.array([known.get(value, 0.0) for value in discovery.values])


def normal(unequal: str, shares: Floats, n: int, rng: np.random.Generator, *, sums: bool) -> tuple[Estimate, Floats]:
    """Draw estimates as normal numbers."""
    d = len(shares)
    errors = np.ones(d)
    if unequal == "unequal":
        errors = np.exp(rng.uniform(0, np.log(10), d))
    elif unequal == "one unknown":  # of those tied
        errors = np.where(np.arange(d) == 1, 10.0, 1.0)
    correlation = np.eye(d)
    if sums:
        correlation += (np.eye(d) - 1) / max(d - 1, 1) * 0.999
    covariance = correlation * np.outer(errors, errors) * 0.01 / n
    estimates = rng.multivariate_normal(shares, covariance, method="cholesky")
    joint: Any = Joint(estimates, covariance, errors, errors, 0.0, None)  # type: ignore[arg-type] - not asked for
    return Discovery(n, tuple(range(d)), (), n, joint), shares


def is_false(named: Floats | list[int], shares: Floats) -> bool:
    """Whether one is named that is not alone the greatest, or one of the greatest is left out."""
    if not len(shares):
        return False
    most = set(np.flatnonzero(shares >= shares.max() - 1e-12).tolist())
    leaders = {int(each) for each in named}
    return not most <= leaders or (len(leaders) == 1 and len(most) > 1)


def by_second(estimate: Estimate) -> list[int]:
    """Name the first if it is above the second: not what the code does."""
    order = np.argsort(-estimate.frequency)
    error = np.sqrt(difference_variance(estimate, order[:1])[0, order[1]])
    ahead = estimate.frequency[order[0]] - estimate.frequency[order[1]] > -ndtri((1 - LEVEL) / 2) * error
    return [int(order[0])] if ahead else order.tolist()


def lines() -> dict[str, tuple[Draw, bool]]:
    """Return how each line draws its estimates, and whether it names by the second only."""
    all_: dict[str, tuple[Draw, bool]] = {}
    for text, epsilon in EPSILONS.items():
        for name in (*ONE_STEP, *POOLS) if epsilon == 1 else SPARSE:
            all_[f"{name}, epsilon {text}"] = partial(list_estimate, name, epsilon), False
        for name in ("grr", "oue", "local_hash"):
            all_[f"{name}, epsilon {text}, five reports each"] = partial(again, name, epsilon), False
        for name in PERMANENT:
            all_[f"{name}, epsilon {text}, permanent"] = partial(permanent, name, epsilon), False
        for name in ("sampled_options", "sampled_pair"):
            all_[f"{name}, epsilon {text}"] = partial(sets, name, epsilon), False
        all_[f"sampled_options, epsilon {text}, as of five reports each"] = partial(sets_again, "sampled_options", epsilon), False
    all_["pem, epsilon 4, found"] = partial(search, 4.0), False
    for unequal in ("equal", "unequal", "one unknown"):
        for sum_ in (False, True):
            all_[f"normal, {unequal}{', of a whole' if sum_ else ''}"] = partial(normal, unequal, sums=sum_), False
    all_["normal, one unknown, first against second"] = partial(normal, "one unknown", sums=False), True
    return all_


def share(draw: Draw, by_the_second: bool, shares: Floats, n: int, runs: int) -> float:  # noqa: FBT001
    """Measure the share of headlines that are false."""
    rng, false = np.random.default_rng(7), 0
    for _ in range(runs):
        estimate, held = draw(shares, n, rng)
        if len(held) > 1:
            false += is_false(by_second(estimate) if by_the_second else Leaders(estimate, LEVEL).places.tolist(), held)
    return false / runs


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--only", nargs="*", help="lines that begin so")
    arguments = parser.parse_args()
    print("| " + " | ".join(["estimates", *POPULATIONS]) + " |")
    print("|" + " --- |" * (1 + len(POPULATIONS)))
    above = cells = 0
    for name, (draw, by_the_second) in lines().items():
        if arguments.only and not name.startswith(tuple(arguments.only)):
            continue
        runs = arguments.runs // (10 if name.startswith(SLOW) else 1)
        high = MOST + 3 * float(np.sqrt(MOST * (1 - MOST) / runs))
        figures = []
        for shares in POPULATIONS.values():
            figure = max(share(draw, by_the_second, shares, n, runs) for n in REPORTS)
            cells, above = cells + 1, above + (figure > high and not by_the_second)
            figures.append(f"**{figure:.3f}**" if figure > high else f"{figure:.3f}")
        print("| " + " | ".join([name, *figures]) + " |", flush=True)
    print(f"{cells} cells, {above} above {MOST} by three of their errors")
    sys.exit(above > 0)


if __name__ == "__main__":
    main()
