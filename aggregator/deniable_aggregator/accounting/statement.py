"""The statement: an account in words for reviewers, and as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from deniable.limits.allowance import MICRO
from deniable.messages.plural import plural
from deniable_aggregator import checks
from deniable_aggregator.accounting import sums
from deniable_aggregator.accounting.account import METHODS, account
from deniable_aggregator.accounting.crowds.readers import Readers
from deniable_aggregator.accounting.crowds.relay import Mixed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deniable_aggregator.accounting.account import Account
    from deniable_aggregator.accounting.crowds.crowd import Crowd
    from deniable_aggregator.accounting.plan import Plan, Use
    from deniable_aggregator.accounting.spend import Spend

_PAGE = "https://deniable.github.io/deniable/explanation/accounting/#what-they-hold-for"
_NEAREST, _CEILING = Context(prec=9), Context(prec=5, rounding=ROUND_CEILING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The totals of a device, and what may be claimed of it."""

    spends: tuple[Spend, ...]  # of one device
    accounts: tuple[Account, ...]  # of one device, one for each delta
    devices: int = 1  # number of devices of a person or a household
    theirs: tuple[Account, ...] = ()  # of all these devices together, one for each delta
    plan: Plan | None = None  # if the spends come from a registry
    crowds: tuple[Crowd, ...] = ()  # if the spends are not of a registry: the reports in published sums, if any are assumed
    permanent: bool = False  # whether some of them are of kept responses

    @property
    def allowed(self) -> float:
        """What the budget allows one device, in nats; infinite without a budget."""
        return self.plan.allowed if self.plan else inf

    @property
    def fits(self) -> bool:
        """Whether the budget has room for all of it."""
        return self.plan is None or self.plan.fits

    def capped(self, total: float, devices: int = 1) -> float:
        """Return the total, or what the budget allows this many devices if that is less."""
        return min(total, devices * self.allowed)

    def lines(
        self,
        *,
        every: bool = False,  # whether to write the totals of all methods, instead of the plain sum and the least total only
    ) -> Iterator[str]:
        """Write it for people, line by line."""
        least = {each.quoted for each in (*self.accounts, *self.theirs)}
        keys = [key for key in self.accounts[0].totals if every or key == "basic" or key in least]
        if self.plan:
            yield from self._uses(self.plan)
        yield from self._table(keys)
        yield from self._quote()
        yield from self.readers.lines(number)
        yield from self.mixed.lines(number)
        yield ""
        yield from self._conditions()

    def _uses(self, plan: Plan) -> Iterator[str]:
        yield (
            "What a device gives away if each metric is reported the times stated:"
            if plan.reports is not None
            else f"What a device gives away in {f'{plan.days:,} days' if plan.days else 'a calendar month'}, if it reports each "
            "metric as often as it may:"
        )
        yield ""
        rows = [("metric", "mechanism", "reports", "what adds up", "plain sum", "reserved a month", "reserved ever")]
        for use in plan.uses:
            spend = use.spend
            noun = "kept response" if use.permanent and use.occasions > 1 else "report"
            what = f"{plural(spend.count, noun)} at {spend.epsilon:.6g}"
            if use.permanent and use.occasions == 1:
                what += f" (the ledger counts {number(use.allowance.cost / MICRO)})"
            reserved = (number(use.reserved_month), number(use.reserved_lifetime) if isfinite(use.reserved_lifetime) else "-")
            columns = (f"{use.occasions:,}", what, number(spend.count * spend.epsilon))
            rows.append((use.metric.id, use.mechanism.name, *columns, *reserved))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            left = "  ".join(cell.ljust(width) for cell, width in zip(row[:2], widths, strict=False))
            right = "  ".join(cell.rjust(width) for cell, width in zip(row[4:], widths[4:], strict=True))
            yield f"{left}  {row[2]:>{widths[2]}}  {row[3]:<{widths[3]}}  {right}"
        yield ""

    def _table(self, keys: Sequence[str]) -> Iterator[str]:
        columns = [(1, each) for each in self.accounts] + [(self.devices, each) for each in self.theirs]
        heads = [f"{'a device' if devices == 1 else f'{devices} devices'}, {each.delta:g}" for devices, each in columns]
        yield f"{'epsilon in all, for a delta':42}" + "".join(f"{head:>20}" for head in heads)
        for key in keys:
            cells = [_cell(each, key) for _, each in columns]
            yield f"{METHODS[key].name:42}" + "".join(f"{cell:>20}" for cell in cells)
        if any(cell.totals[key] > cell.basic for _, cell in columns for key in keys):
            yield "(x) more than the plain sum, so of no use here"
        yield ""

    def _quote(self) -> Iterator[str]:
        first = self.accounts[0]
        pure = self.capped(first.basic)
        yield f"Quote: epsilon {number(pure)}, which needs no delta{' (the budget stops there)' if pure < first.basic else ''}."
        for own in self.accounts:
            best = self.capped(own.epsilon)
            if best < pure:
                source = METHODS[own.quoted]
                if own.worth_a_delta:
                    yield f"Beside it: epsilon {number(best)} with delta {own.delta:g}: {source.name} ({source.source})."
                else:
                    yield f"A delta of {own.delta:g} takes off little ({number(best)} in all): quote the first figure alone."
            else:
                yield f"A delta of {own.delta:g} takes nothing off: quote the first figure alone."
        for joint in self.theirs:
            total, best = self.capped(joint.basic, self.devices), self.capped(joint.epsilon, self.devices)
            of_it = f" With delta {joint.delta:g}: {number(best)}." if best < total else ""
            yield f"All {self.devices} devices of a person or a household: epsilon {number(total)}.{of_it}"

    def _conditions(self) -> Iterator[str]:
        """Say in few lines what to know before a figure is quoted. The page of the site has the rest."""
        if self.permanent:
            yield (
                "All this holds between histories of answers that change, and return to an earlier one, at the same times. "
                "That an answer changed, or returned to an earlier one, is not covered."
            )
        else:
            yield "All this holds between any two histories of answers, for somebody who sees all reports."
        if self.plan:
            yield from self._budget(self.plan)
        yield from self.readers.conditions()
        yield f"What all figures hold for: {_PAGE}"

    def _budget(self, plan: Plan) -> Iterator[str]:
        month, ever = plan.budget.per_month, plan.budget.lifetime
        parts = [
            f"{number(reserved)} of {number(bound)} {what}"
            for reserved, bound, what in ((plan.reserved_month, month, "nats a month"), (plan.reserved_lifetime, ever, "ever"))
            if bound is not None
        ]
        if parts:
            fault = ""
            if not plan.fits:
                dearest = max(plan.uses, key=lambda use: use.reserved_month)
                most = f"Most is reserved for {dearest.metric.id}."
                fault = f" They do not fit: lint refuses such a registry, and in apps the last metrics are off. {most}"
            yield f"Budget: these metrics reserve {', and '.join(parts)}.{fault}"

    @property
    def readers(self) -> Readers:
        """What readers of published sums learn, with the first delta."""
        uses = self.plan.uses if self.plan else ()
        crowds = [("a report", crowd) for crowd in self.crowds] + [(use.metric.id, use.crowd) for use in uses if use.crowd]
        refused = tuple((use.metric.id, use.refusal) for use in uses if use.refusal)
        return Readers(tuple(crowds), refused, self.accounts[0].delta, self.devices)

    @property
    def mixed(self) -> Mixed:
        """What the server learns of reports that a relay mixes, with the first delta."""
        uses = self.plan.uses if self.plan else ()
        shuffled = tuple((use.metric, use.occasions) for use in uses if use.metric.shuffled)
        return Mixed(self.plan.operator if self.plan else "", shuffled, self.accounts[0].delta, self.devices)

    def to_dict(self) -> dict[str, Any]:
        """Write it as plain values, for JSON."""
        written: dict[str, Any] = {"totals": [self._written(each) for each in self.accounts]}
        if self.plan:
            written["metrics"] = [_use(use) for use in self.plan.uses]
            written |= {"days": self.plan.days, "fits": self.fits, "budget": self._written_budget(self.plan)}
        else:
            written["spends"] = [{"epsilon": spend.epsilon, "reports": spend.count} for spend in self.spends]
        if self.theirs:
            written["group"] = {"devices": self.devices, "totals": [self._written(each, self.devices) for each in self.theirs]}
            pairs = [sums.group(each.epsilon, each.delta, self.devices) for each in self.accounts]
            written["group"]["of_the_pair_alone"] = [{"epsilon": epsilon, "delta": delta} for epsilon, delta in pairs]
        written["readers"] = self.readers.to_dict()
        if self.mixed.metrics:
            written["relay"] = self.mixed.to_dict()
        return written

    def _written(self, account: Account, devices: int = 1) -> dict[str, Any]:
        basic, epsilon = self.capped(account.basic, devices), self.capped(account.epsilon, devices)
        quote = {"basic": basic, "epsilon": epsilon, "method": account.quoted}
        return {"delta": account.delta, "rho": account.rho, **account.totals, "quote": quote}

    @staticmethod
    def _written_budget(plan: Plan) -> dict[str, Any]:
        budget = plan.budget
        return {
            "per_month": budget.per_month,
            "lifetime": budget.lifetime,
            "reserved_in_month": plan.reserved_month,
            "reserved_ever": plan.reserved_lifetime if isfinite(plan.reserved_lifetime) else None,
            "allowed_in_all": plan.allowed if isfinite(plan.allowed) else None,
        }


def statement(
    spends: Sequence[Spend],
    deltas: Sequence[float],
    *,
    devices: int = 1,
    plan: Plan | None = None,
    crowds: Sequence[Crowd] = (),
    permanent: bool = False,
) -> Statement:
    """Make an account of spends for each delta, and for several devices with the same spends; see `Statement`."""
    checks.count("devices", devices)
    single = tuple(account(spends, delta) for delta in deltas)
    joint = [spend.times(devices) for spend in spends]
    theirs = tuple(account(joint, delta) for delta in deltas) if devices > 1 else ()
    return Statement(
        spends=tuple(spends),
        accounts=single,
        devices=devices,
        theirs=theirs,
        plan=plan,
        crowds=tuple(crowds),
        permanent=permanent or (plan is not None and any(use.permanent for use in plan.uses)),
    )


def _use(use: Use) -> dict[str, Any]:
    spend = use.spend
    return {
        "metric": use.metric.id,
        "mechanism": use.mechanism.name,
        "asked": use.occasions,
        "kept_responses": use.answers,
        "epsilon": spend.epsilon,
        "spends": spend.count,
        "share": spend.share,
        "basic": spend.count * spend.epsilon,
        "reserved_in_month": use.reserved_month,
        "reserved_ever": use.reserved_lifetime if isfinite(use.reserved_lifetime) else None,
    }


def _cell(account: Account, key: str) -> str:
    total = account.totals[key]
    return number(total) + (" (x)" if total > account.basic else "")


def number(epsilon: float) -> str:
    """Write an epsilon with five digits, rounded up. Less than a billionth is written as 0."""
    rounded = _CEILING.plus(_NEAREST.plus(Decimal(epsilon)))
    return f"{rounded.normalize():,f}"
