/** What recording a metric sends, in words. It claims no more than holds in a browser. */

import type { SheetMetric } from "./sheet.js";
import type { Budget } from "./device/ledger.js";
import type { Store } from "./device/state.js";

export interface Explanation {
  readonly metric: string;
  readonly mechanism: string;
  /** Privacy loss of a report in nats, in millionths as it is counted. */
  readonly cost: number;
  /** What holds for this metric. */
  readonly lines: readonly string[];
  /** What holds for all metrics alike. */
  readonly shared: readonly string[];
}

const nats = (millionths: number): number => Number((millionths / 1e6).toPrecision(4));
const times = (millionths: number): number => Number(Math.exp(millionths / 1e6).toPrecision(3));

export function explain(id: string, metric: SheetMetric, budget: Budget, store: Store): Explanation {
  const { cost, per_period: reports } = metric.allowance;
  const permanent = metric.epsilon_permanent !== null;
  const most = permanent ? 1 : reports;
  const lines = [
    `${id}: at most ${most} report${most === 1 ? "" : "s"} a ${metric.period}, of ${metric.layout.payload_bytes} byte${metric.layout.payload_bytes === 1 ? "" : "s"}, whatever the answer.`,
    `${permanent ? "All reports of one answer together are" : "A report is"} at most ${times(cost)} times as likely with your answer as with another one (epsilon ${nats(cost)}).`,
    `${permanent ? "They cost" : "It costs"} ${Math.ceil((100 * cost) / budget.per_month)}% of what all answers may give away in a month.`,
  ];
  if (metric.segments.length) lines.push(`A report says in clear: ${metric.segments.join(", ")}.`);
  const shared = [`In a month all answers together may give away ${nats(budget.per_month)} nats, the unit of epsilon.`];
  if (store.forgets) shared.push("If this browser's data are cleared, it starts anew: this is a rate, and no bound for ever.");
  else if (!store.lasts) shared.push("What was spent is remembered until this page ends.");
  shared.push("With an upload the server sees the browser's address, name and languages.");
  return { metric: id, mechanism: metric.mechanism, cost, lines, shared };
}
