"""The subcommand ``rappor``: read the files of a google/rappor deployment."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING

from deniable.errors import ConfigurationError
from deniable.messages.plural import plural

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from deniable.commands.parser import Run
    from deniable.mechanisms.texts.google_rappor import Params
    from deniable_aggregator.decode.estimate import Estimate
    from deniable_aggregator.tally import Tally

_SHOWN = 20


def rappor(parser: argparse.ArgumentParser) -> Run:
    """``deniable rappor decode|count|map|associate``: read the files of a google/rappor deployment."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    decoding = actions.add_parser("decode", help="estimate shares from counts (or reports) and candidates")
    decoding.add_argument("--counts", metavar="CSV", help="m lines of k + 1 numbers: the reports of a cohort, then of each bit")
    decoding.add_argument("--reports", metavar="CSV", help="the reports themselves, with columns cohort and irr (or rappor)")
    decoding.add_argument("--map", metavar="CSV", help="candidates with the positions of their bits, which are checked")
    decoding.add_argument("--candidates", metavar="FILE", help="candidates alone, one to a line")
    decoding.add_argument("--basic", metavar="FILE", help="candidates of basic RAPPOR: line i has bit i")
    decoding.add_argument("--boolean", action="store_true", help="one bit: yes or no")
    decoding.add_argument("--alpha", type=float, default=0.05, help="bound on error over all candidates (default 0.05)")
    decoding.add_argument("--control", choices=("family", "discovery"), default="family", help="Holm, or Benjamini and Hochberg")
    decoding.add_argument("--all", action="store_true", help="print the candidates that were not detected, too")
    decoding.add_argument("--json", action="store_true", help="print one JSON object")
    count = actions.add_parser("count", help="sum a reports file into a counts file")
    count.add_argument("--reports", metavar="CSV", required=True)
    count.add_argument("--out", metavar="CSV", required=True)
    hashed = actions.add_parser("map", help="hash candidates into a map file")
    hashed.add_argument("--candidates", metavar="FILE", required=True)
    hashed.add_argument("--out", metavar="CSV", required=True)
    together = actions.add_parser("associate", help="estimate how several variables go together")
    together.add_argument("--reports", metavar="CSV", required=True, help="a device a line: its cohort and a report a variable")
    together.add_argument(
        "--variable",
        nargs=3,
        action="append",
        required=True,
        metavar=("COLUMN", "PARAMS", "CANDIDATES"),
        help="two or more; CANDIDATES is - for a Boolean, of one bit",
    )
    together.add_argument("--cohort", default="cohort", metavar="COLUMN", help="heading of the cohorts (default cohort)")
    together.add_argument("--json", action="store_true", help="print one JSON object")
    for action in (decoding, count, hashed):
        action.add_argument("--params", metavar="CSV", required=True, help="with the header k,h,m,p,q,f; or JSON")

    def run(arguments: argparse.Namespace) -> int:
        from deniable_aggregator.rappor import decode, files

        if arguments.action == "associate":
            return _associate(arguments)
        params = files.load_params(arguments.params)
        if arguments.action == "count":
            counted = decode.load_tally(params, reports=arguments.reports)
            files.save_counts(arguments.out, counted.counts, counted.reports)
            listed = f"{plural(counted.n, 'report')} of {plural(params.cohorts, 'cohort')}"
            print(f"{arguments.out}: {listed}; next: deniable rappor decode --counts")
        elif arguments.action == "map":
            candidates = decode.load_candidates(arguments.candidates)
            files.save_map(arguments.out, candidates, params)
            listed = plural(len(candidates), "candidate")
            print(f"{arguments.out}: {listed}; next: deniable rappor decode --map {arguments.out}")
        else:
            _decode(arguments, params)
        return 0

    return run


def _candidates(arguments: argparse.Namespace, params: Params, counted: Tally) -> tuple[Sequence[str], Estimate]:
    """Read the names of the candidates, and estimate them."""
    from deniable_aggregator.rappor import decode, files

    if arguments.boolean:
        if params.bits != 1:
            raise ConfigurationError(f"--boolean is for parameters of one bit; these have k = {params.bits}")
        return ["true"], decode.bits(params, counted)
    if arguments.basic:
        names = decode.load_candidates(arguments.basic)
        if len(names) != params.bits:
            raise ConfigurationError(
                f"the file has {len(names)} candidates: basic RAPPOR needs one for each of its k = {params.bits} bits"
            )
        return names, decode.bits(params, counted)
    if arguments.map or arguments.candidates:
        read = files.load_map(arguments.map, params) if arguments.map else decode.load_candidates(arguments.candidates)
        return read, decode.strings(params, counted, read)
    raise ConfigurationError("decode needs the candidates: --map, --candidates, --basic or --boolean")


def _decode(arguments: argparse.Namespace, params: Params) -> None:
    import numpy as np

    from deniable_aggregator.decode.estimate import finite
    from deniable_aggregator.rappor import decode

    counted = decode.load_tally(params, counts=arguments.counts, reports=arguments.reports)
    names, estimate = _candidates(arguments, params, counted)
    detected = estimate.detected(arguments.alpha, control=arguments.control)
    # Detected candidates were selected by their estimates, so their intervals are wider than those of values chosen before.
    low, high = estimate.selected_interval(detected, 1 - arguments.alpha)
    unallocated, unallocated_stderr = estimate.unallocated
    limit = estimate.detection_frequency(arguments.alpha)
    order = [i for i in np.argsort(-estimate.frequency, kind="stable") if detected[i] or arguments.all]
    if arguments.json:
        rows = [
            {
                "candidate": names[i],
                "frequency": finite(estimate.frequency[i]),
                "stderr": finite(estimate.stderr[i]),
                "interval": [finite(low[i]), finite(high[i])],
                "interval_kind": "selected" if detected[i] else "pointwise",
                "p_value": float(estimate.p_value[i]),
                "detected": bool(detected[i]),
            }
            for i in order
        ]
        summary = {
            "n": counted.n,
            "candidates": len(names),
            "detected": int(detected.sum()),
            "detection_frequency": finite(limit),
            "unallocated": {"frequency": finite(unallocated), "stderr": finite(unallocated_stderr)},
            "epsilon": params.epsilon_one_time,
            "epsilon_permanent": finite(params.epsilon_permanent),
        }
        print(json.dumps(summary | {"estimates": rows}, indent=2, ensure_ascii=False))
        return
    for i in order:
        mark = "" if detected[i] else "  not detected"
        interval = f"{low[i]:8.3%} to {high[i]:7.3%}"
        print(f"{estimate.frequency[i]:8.3%} ± {estimate.stderr[i]:.3%}  {interval}  {names[i]}{mark}")
    forever = f"{params.epsilon_permanent:.4g}" if isfinite(params.epsilon_permanent) else "without a bound"
    print(f"{plural(counted.n, 'report')}, epsilon {params.epsilon_one_time:.4g} each, {forever} for all of one value")
    print(f"{detected.sum()} of {plural(len(names), 'candidate')} detected; their intervals allow for having been selected")
    if isfinite(unallocated_stderr):
        print(f"{unallocated:.1%} ± {unallocated_stderr:.1%} of people hold none of the candidates")
    if not detected.any():
        print("Nothing is detectable with this many reports: collect more, or spend more epsilon.")
    if isfinite(limit):
        print(f"A candidate held by {limit:.3%} is detected half of the time; four times the reports halve that.")


def _associate(arguments: argparse.Namespace) -> int:
    import numpy as np

    from deniable_aggregator.decode.estimate import finite
    from deniable_aggregator.rappor import decode, files

    if len(arguments.variable) < 2:  # noqa: PLR2004
        raise ConfigurationError("an association is between two variables or more: repeat --variable")
    variables = [
        decode.Variable(files.load_params(params), column, () if names == "-" else tuple(decode.load_candidates(names)))
        for column, params, names in arguments.variable
    ]
    with files.opened(arguments.reports) as lines:
        association = decode.associate(lines, variables, arguments.cohort)
    test = association.independence()
    low, high = association.interval(0.95)
    shape, order = association.frequency.shape, np.argsort(-association.frequency, axis=None, kind="stable").tolist()
    names = [[variable.categories[i] for variable, i in zip(variables, np.unravel_index(at, shape), strict=True)] for at in order]
    numbers = {"frequency": association.frequency, "stderr": association.stderr, "low": low, "high": high}
    if arguments.json:
        independence = {"statistic": finite(test.statistic), "degrees": test.degrees, "p_value": finite(test.p_value)}
        rows = [
            {"values": values} | {name: finite(array.flat[at]) for name, array in numbers.items()}
            for values, at in zip(names, order, strict=True)
        ]
        outcome = {"n": association.n, "converged": association.converged, "independence": independence, "estimates": rows}
        print(json.dumps(outcome, indent=2, ensure_ascii=False))
        return 0
    for values, at in zip(names[:_SHOWN], order, strict=False):
        print(f"{association.frequency.flat[at]:8.2%} ± {association.stderr.flat[at]:.2%}  {', '.join(values)}")
    if len(order) > _SHOWN:
        print(f"... and {len(order) - _SHOWN} more combinations; --json prints them all")
    chi_square = f"chi-square {test.statistic:.4g} on {test.degrees} degrees, p = {test.p_value:.2g}"
    print(f"{plural(association.n, 'device')}; independent? {chi_square}")
    return 0
