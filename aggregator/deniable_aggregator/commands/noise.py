"""The textbook questions of ``account``: what queries with Gaussian or Laplace noise come to, by zCDP, Renyi and exactly."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from deniable.errors import ConfigurationError
from deniable_aggregator.commands import options

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence

    from deniable_aggregator.accounting.central.noise import Noise

_SEARCH = "search"
_OURS = ("gaussian", "laplace", "within", "sensitivity", "queries", "alpha", "csv")
_SHARED = {"delta", "check", "plot", "json"}
_INSTEAD = {"reports": "--queries says how many", "group": "--sensitivity says how much they change together"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of noise."""
    group = parser.add_argument_group("textbook questions: noise on answers that an operator publishes, instead of reports")
    about = "standard deviation, in the unit of the answers; or search: the least for --within"
    group.add_argument("--gaussian", type=_scale, metavar="SIGMA", help=about)
    group.add_argument("--laplace", type=_scale, metavar="B", help="scale, in the unit of the answers; or search, likewise")
    about = "with search: the most that the answers may cost together, in nats"
    group.add_argument("--within", type=float, metavar="E", help=about)
    about = "largest change of an answer by one person, in the same unit (default 1)"
    group.add_argument("--sensitivity", type=float, metavar="D", help=about)
    group.add_argument(
        "--queries", type=options.whole_number, metavar="K", help="answers, each with noise of its own (default 1)"
    )
    group.add_argument("--alpha", metavar="A", help="order of Renyi above 1, or search: the best one (default)")
    group.add_argument("--csv", metavar="FILE", help="write the curves: divergence by order, and epsilon by queries and method")


def _scale(written: str) -> float | str:
    if written == _SEARCH:
        return written
    try:
        return float(written)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number above 0 is needed, or {_SEARCH}, not {written!r}") from None


def is_noise(arguments: Namespace) -> bool:
    """Return whether the question is one of noise; raise `ConfigurationError` if an option of noise stands without it."""
    if arguments.gaussian is not None or arguments.laplace is not None:
        return True
    for name in _OURS:
        if getattr(arguments, name) is not None:
            raise ConfigurationError(f"--{name} goes with --gaussian or --laplace; write --gaussian SIGMA or --laplace B")
    return False


def answer(
    arguments: Namespace,
    defaults: Mapping[str, Any],  # of all options, by name
    places: Sequence[int],  # numbers of queries at which a curve is computed, ascending
) -> int:
    """Answer a textbook question; return the exit status."""
    from deniable_aggregator.accounting import renyi, zcdp
    from deniable_aggregator.accounting.central.curves import Curves

    _check(arguments, defaults)
    draw = options.drawing("accounting.central.plot") if arguments.plot else None
    noise, (delta,), order = of(arguments), arguments.delta, _order(arguments.alpha)
    best, simple = (
        renyi.search(noise.divergence, delta, textbook=textbook)[1] if order is None else order for textbook in (False, True)
    )
    fields = {
        "noise": noise.name.lower(),
        noise.parameter: noise.scale,
        "sensitivity": noise.sensitivity,
        "queries": noise.queries,
        "delta": delta,
        "rho": {"query": noise.rho_each, "all": noise.rho},
        "renyi": {"alpha": best, "searched": order is None, "divergence": renyi.divergence_at(noise.divergence, best)},
        "epsilon": noise.totals(delta, best),
        "textbook": {
            "zcdp": zcdp.textbook(noise.rho, delta),
            "renyi": renyi.epsilon_at(noise.divergence, simple, delta, textbook=True),
            "alpha": simple,
        },
    }
    if arguments.check:
        from deniable_aggregator.accounting import library

        fields["dp_accounting"] = library.of_noise(noise, delta)
    if arguments.json:
        print(json.dumps(fields))
    else:
        print("\n".join(_lines(noise, fields)))
    if draw or arguments.csv:
        curves = Curves.of(noise, delta, places, order)
        if arguments.csv:
            curves.write(arguments.csv)
            print(f"Curves: {arguments.csv}", file=sys.stderr)
        if draw:
            draw(curves, arguments.plot)
            print(f"Plot: {arguments.plot}", file=sys.stderr)
    return 0


def of(arguments: Namespace) -> Noise:
    """Return the noise of the command line."""
    from deniable_aggregator.accounting.central.noise import Gaussian, Laplace

    if arguments.gaussian is not None and arguments.laplace is not None:
        raise ConfigurationError("either --gaussian or --laplace")
    sensitivity = 1.0 if arguments.sensitivity is None else arguments.sensitivity
    queries = 1 if arguments.queries is None else arguments.queries
    kind, scale = (Gaussian, arguments.gaussian) if arguments.gaussian is not None else (Laplace, arguments.laplace)
    if (scale == _SEARCH) != (arguments.within is not None):
        raise ConfigurationError(f"--{kind.name.lower()} {_SEARCH} and --within E go together: the least noise for a total of E")
    if scale == _SEARCH:
        return kind(1.0, sensitivity, queries).within(arguments.within, arguments.delta[0])
    return kind(scale, sensitivity, queries)


def _check(arguments: Namespace, defaults: Mapping[str, Any]) -> None:
    """Refuse options that are about reports."""
    for name, value in vars(arguments).items():
        if name in defaults and name not in _OURS and name not in _SHARED and value != defaults[name]:
            instead = _INSTEAD.get(name, "leave it out")
            raise ConfigurationError(f"--{name.replace('_', '-')} is about reports, not about noise: {instead}")
    if len(arguments.delta) > 1:
        raise ConfigurationError(f"--gaussian and --laplace take one --delta; there are {len(arguments.delta)}")


def _order(text: str | None) -> float | None:
    """Return the order of Renyi; None for the best one."""
    from deniable.messages.lookalike import nearest

    if text is None or text == _SEARCH:
        return None
    try:
        order = float(text)
    except ValueError:
        order = 0.0
    if not 1 < order < float("inf"):
        hint = f"; did you mean {_SEARCH}?" if nearest(text, [_SEARCH]) else f", or {_SEARCH}"
        raise ConfigurationError(f"--alpha = {text!r}: write an order above 1, such as 8{hint}")
    return order


def _lines(noise: Noise, fields: Mapping[str, Any]) -> Iterator[str]:
    from deniable.messages.plural import plural
    from deniable_aggregator.accounting.account import METHODS
    from deniable_aggregator.accounting.statement import number

    delta, basic, loss = fields["delta"], fields["epsilon"]["basic"], fields["renyi"]
    simple = fields["textbook"]["alpha"]
    yield (
        f"{noise.name} noise, {noise.parameter} {noise.scale:g}, sensitivity {noise.sensitivity:g}, "
        f"{plural(noise.queries, 'query')}, delta {delta:g}"
    )
    yield ""
    yield f"rho of a query, and of all: {number(noise.rho_each)}, {number(noise.rho)}"
    mark = " (the best one)" if loss["searched"] else ""
    yield f"Renyi divergence of all at alpha {loss['alpha']:.6g}{mark}: {number(loss['divergence'])}"
    yield ""
    yield "epsilon of all queries"
    for key, total in fields["epsilon"].items():
        name = f"exact, for this noise ({noise.source})" if key == "exact" else METHODS[key].name
        yield f"{name:74}{number(total):>12}{' (x)' if total > basic else ''}"
        if key in fields["textbook"]:
            formula = (
                "rho + 2 sqrt(rho ln(1/delta))" if key == "zcdp" else f"divergence + ln(1/delta)/(alpha - 1) at {simple:.6g}"
            )
            yield f"{f'  as textbooks convert it: {formula}':74}{number(fields['textbook'][key]):>12}"
    if any(total > basic for total in fields["epsilon"].values()):
        yield "(x) more than the plain sum, so of no use here"
    yield ""
    if "dp_accounting" in fields:
        yield f"dp-accounting: {fields['dp_accounting']:.6g}; ours is {fields['epsilon']['exact']:.6g}."
    exact = f"epsilon {number(fields['epsilon']['exact'])} with delta {delta:g}"
    pure = f"Quote: epsilon {number(basic)}, which needs no delta. Beside it: "
    yield f"{pure if noise.pure else 'Quote: '}{exact}, exact, and the sensitivity it is for."
    yield "Holds between any two data sets whose answers differ by at most the sensitivity, if each answer has noise of its own."
