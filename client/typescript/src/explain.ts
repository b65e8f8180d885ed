/** What recording a metric sends, in words. It claims no more than holds in a browser. */

import type { SheetMetric } from "./sheet.js";
import type { Budget, spend } from "./device/ledger.js";
import type { State, Store } from "./device/state.js";

export interface Explanation {
  readonly metric: string;
  readonly mechanism: string;
  /** Privacy loss of a report in nats, in millionths as it is counted. */
  readonly cost: number;
  /** Ask in how many days there is budget for a report. 0 is now, and null is never. */
  days(): Promise<number | null>;
  /** What holds for this metric. */
  readonly lines: readonly string[];
  /** What holds for all metrics alike. */
  readonly shared: readonly string[];
}

const nats = (millionths: number): number => Number((millionths / 1e6).toPrecision(4));
const times = (millionths: number): number => Number(Math.exp(millionths / 1e6).toPrecision(3));

const DAY = 86_400_000;
const MOST_DAYS = 62; // by then each budget of a month is whole again, and earned

/** Ask the ledger of a state on each of the next days. Nothing is spent. */
async function daysUntil(metric: SheetMetric, budget: Budget, store: Store, ledger: typeof spend, now: number): Promise<number | null> {
  const nothing = { born: now, accounts: {}, spends: {} };
  const spent = (await store.begun()) ? await store.transact(({ born, accounts, spends }) => ({ born, accounts, spends })) : nothing;
  for (let days = 0; days <= MOST_DAYS; days++) {
    const state = structuredClone(spent) as State;
    if (ledger(state, metric, budget, now + days * DAY, true) !== "budget") return days;
  }
  return null;
}

export function explain(
  id: string, metric: SheetMetric, budget: Budget, store: Store, ledger: typeof spend, now: number,
): Explanation {
  const { cost, per_period: reports } = metric.allowance;
  const permanent = metric.epsilon_permanent !== null;
  const most = permanent ? 1 : reports;
  const lines = [
    `At most ${most} report${most === 1 ? "" : "s"} a ${metric.period}, of ${metric.layout.payload_bytes} byte${metric.layout.payload_bytes === 1 ? "" : "s"}, whatever the answer.`,
    `${permanent ? "All reports of one answer together are" : "A report is"} at most ${times(cost)} times as likely with your answer as with another one (epsilon ${nats(cost)}).`,
    `${permanent ? "They cost" : "It costs"} ${Math.ceil((100 * cost) / budget.per_month)}% of what all answers may give away in a month.`,
  ];
  if (metric.segments.length) lines.push(`A report says in clear: ${metric.segments.join(", ")}.`);
  const shared = [`In a month all answers together may give away ${nats(budget.per_month)} nats, the unit of epsilon.`];
  if (store.forgets) shared.push("If this browser's data are cleared, it starts anew: this is a rate, and no bound for ever.");
  else if (!store.lasts) shared.push("What was spent is remembered until this page ends.");
  shared.push("With an upload the server sees the browser's address, name and languages.");
  return { metric: id, mechanism: metric.mechanism, cost, days: () => daysUntil(metric, budget, store, ledger, now), lines, shared };
}
