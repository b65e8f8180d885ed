/** The ledger: what was spent, in millionths of a nat, and whether there is room for more. It works on a state, in a transaction. */

import { monthOf, periodOf } from "../wire/periods.js";
import type { Period, Sheet, SheetMetric } from "../sheet.js";
import type { Account, State } from "./state.js";

const EARNING = 30 * 86_400_000; // in so many milliseconds a new state earns what may be spent in a month

export type Refused = "this_period" | "not_sampled" | "budget";

/** What may be spent on all metrics. */
export interface Budget {
  readonly per_month: number;
  readonly lifetime: number;
  /** What a new state may spend before it has earned it; null if it need not earn. */
  readonly grant: number | null;
}

/** The budget of a sheet, for a store that may forget or does not. */
export function budgetOf(sheet: Sheet, forgets: boolean): Budget {
  const costs = Object.values(sheet.metrics).map((metric) => (metric.epsilon_permanent === null && !metric.off ? metric.allowance.cost : 0));
  return { ...sheet.budget, grant: forgets ? Math.max(0, ...costs) : null };
}

const sum = (numbers: Iterable<number>): number => {
  let total = 0;
  for (const number of numbers) total += number;
  return total;
};

export const accountOf = (state: State, tag: string): Account => state.accounts[tag] ?? { period: "", reports: 0, spent: 0 };
export const spentIn = (state: State, month: string): number => sum(Object.values(state.spends[month] ?? {}));
export const spentEver = (state: State): number => sum(Object.values(state.accounts).map((account) => account.spent));

function write(state: State, metric: SheetMetric, now: number, ever: number, inMonth: number): void {
  const tag = metric.fingerprint;
  const before = accountOf(state, tag);
  const period = periodOf(now, metric.period as Period);
  const reports = before.period === period ? before.reports + 1 : 1;
  state.accounts[tag] = { period, reports, spent: before.spent + ever };
  const month = (state.spends[monthOf(now, metric.period as Period)] ??= {});
  month[tag] = (month[tag] ?? 0) + inMonth;
}

/** Spend for one report; return null, or why there is none. */
export function spend(state: State, metric: SheetMetric, budget: Budget, now: number, sampled: boolean): Refused | null {
  const { fingerprint: tag, allowance } = metric;
  const permanent = metric.epsilon_permanent !== null;
  const period = periodOf(now, metric.period as Period);
  const account = accountOf(state, tag);
  const most = permanent ? 1 : allowance.per_period;
  if (period < account.period || (period === account.period && account.reports >= most)) return "this_period";
  if (!sampled) {
    write(state, metric, now, 0, 0);
    return "not_sampled";
  }
  const month = monthOf(now, metric.period as Period);
  // The first report of a kept metric spends its whole reserve. So what is left does not show how many answers there were.
  const reserve = allowance.lifetime ?? allowance.month;
  const ever = permanent ? Math.max(0, reserve - account.spent) : allowance.cost;
  const inMonth = permanent ? Math.max(0, allowance.month - (state.spends[month]?.[tag] ?? 0)) : allowance.cost;
  if (spentIn(state, month) + inMonth > budget.per_month) return "budget";
  if (!permanent && allowance.lifetime !== null && account.spent + ever > allowance.lifetime) return "budget";
  if (spentEver(state) + ever > budget.lifetime) return "budget";
  if (budget.grant !== null) {
    const earned = Math.floor((budget.per_month * Math.max(0, now - state.born)) / EARNING);
    const inMonths = sum(Object.keys(state.spends).map((each) => spentIn(state, each)));
    if (inMonths + inMonth > Math.max(earned, permanent ? 0 : budget.grant)) return "budget";
  }
  write(state, metric, now, ever, inMonth);
  return null;
}
