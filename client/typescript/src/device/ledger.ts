/** The ledger: what was spent, in millionths of a nat, and whether there is room for more. It works on a state, in a transaction. */

import { monthOf, periodOf } from "../wire/periods.js";
import type { Period, Sheet, SheetMetric } from "../sheet.js";
import type { State } from "./state.js";

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

const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);

export const spentIn = (state: State, month: string): number => sum(Object.values(state.spends[month] ?? {}));
export const spentEver = (state: State): number => sum(Object.values(state.accounts).map((account) => account.spent));

/** Spend for one report; return null, or why there is none. */
export function spend(state: State, metric: SheetMetric, budget: Budget, now: number, sampled: boolean): Refused | null {
  const { fingerprint: tag, allowance } = metric;
  const permanent = metric.epsilon_permanent !== null;
  const period = periodOf(now, metric.period as Period);
  const account = state.accounts[tag] ?? { period: "", reports: 0, spent: 0 };
  const most = permanent ? 1 : allowance.per_period;
  if (period < account.period || (period === account.period && account.reports >= most)) return "this_period";
  const month = monthOf(now, metric.period as Period);
  const before = state.spends[month]?.[tag] ?? 0;
  let ever = 0;
  let inMonth = 0;
  if (sampled) {
    // The first report of a kept metric spends its whole reserve. So what is left does not show how many answers there were.
    ever = permanent ? Math.max(0, (allowance.lifetime ?? allowance.month) - account.spent) : allowance.cost;
    inMonth = permanent ? Math.max(0, allowance.month - before) : allowance.cost;
    if (spentIn(state, month) + inMonth > budget.per_month) return "budget";
    if (!permanent && allowance.lifetime !== null && account.spent + ever > allowance.lifetime) return "budget";
    if (spentEver(state) + ever > budget.lifetime) return "budget";
    if (budget.grant !== null) {
      const earned = Math.floor((budget.per_month * Math.max(0, now - state.born)) / EARNING);
      const inMonths = sum(Object.keys(state.spends).map((each) => spentIn(state, each)));
      if (inMonths + inMonth > Math.max(earned, permanent ? 0 : budget.grant)) return "budget";
    }
  }
  state.accounts[tag] = { period, reports: period === account.period ? account.reports + 1 : 1, spent: account.spent + ever };
  (state.spends[month] ??= {})[tag] = before + inMonth;
  return sampled ? null : "not_sampled";
}
