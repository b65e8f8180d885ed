/** `<deniable-receipt>`: what is asked, what was sent, what is left of the budget, and a switch. Its looks are all the page's. */

import type { Telemetry } from "./client.js";
import type { Sheet, SheetMetric } from "./sheet.js";
import type { Report } from "./wire/batch.js";
import { bigOf, unhex } from "./noise/chance.js";
import { groupOf } from "./noise/mechanisms.js";

/** All words of a receipt. A page may replace each, for example by another language's. */
export const TEXTS = {
  switch: "Send randomised answers from this browser",
  on: "Answers may be sent.",
  off: "Nothing is sent. What was waiting is deleted.",
  disabled: "Telemetry is off here: ",
  asked: "What is asked",
  question: "Question",
  answers: "Possible answers",
  reveals: "What a report reveals",
  metricOff: "This question is off: ",
  any: { string: "a text", key: "a number of 64 bits" } as { readonly [type: string]: string },
  range: (low: string, high: string, unit: string): string => `${low} to ${high}${unit && ` ${unit}`}`,
  sent: "What was sent",
  nothing: "Nothing was sent from this browser yet.",
  period: "Period",
  report: "Report, which may be true or drawn at random",
  says: (answer: string): string => `says “${answer}”, `,
  or: " or ",
  chosen: { true: "yes", false: "no" } as { readonly [chosen: string]: string },
  more: (count: number): string => `${count} more`,
  bytes: "sent as bytes ",
  left: (percent: number, month: string): string => `Privacy budget left for ${month}: ${percent}%`,
  waiting: (count: number): string => `Reports that wait to be sent: ${count}`,
};

export type Texts = typeof TEXTS;

/** Fired at the element when the person turns the switch. The page keeps the choice: the element keeps nothing. */
export type Choice = CustomEvent<{ readonly consent: boolean }>;

type Client = Telemetry<Sheet>;

/** Make an element; a text stays a text. */
function make<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: { readonly [name: string]: string },
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
}

function table(caption: string, headings: readonly string[], rows: readonly (readonly (Node | string)[])[]): HTMLTableElement {
  const head = make("tr", {}, ...headings.map((heading) => make("th", { scope: "col" }, heading)));
  const body = rows.map(([first, ...cells]) =>
    make("tr", {}, make("th", { scope: "row" }, first!), ...cells.map((cell) => make("td", {}, cell))),
  );
  return make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
}

function named(value: unknown, texts: Texts): string {
  if (typeof value === "boolean") return texts.chosen[String(value)]!;
  return Array.isArray(value) ? value.join(", ") : String(value);
}

/** What can be answered, in the words of a page. */
export function answersOf({ type, values, range, unit }: SheetMetric, texts: Texts = TEXTS): string {
  if (values) return values.map((value) => named(value, texts)).join("; ");
  return range ? texts.range(range[0]!, range[1]!, unit ?? "") : (texts.any[type] ?? type);
}

const MOST = 5; // answers that are named

/** What a report says: an answer, answers of which one may be true, or options with yes and no; null where it names none. */
export function answerOf(metric: SheetMetric, payload: string, texts: Texts = TEXTS): string | null {
  const { layout, values, range, unit } = metric;
  const content = bigOf(unhex(payload).reverse());
  if (range && metric.mechanism === "window" && metric.epsilon_permanent === null) {
    const [low, high] = windowOf(metric, Number(content)) as [string, string];
    return low === high ? `${low}${unit ? ` ${unit}` : ""}` : texts.range(low, high, unit ?? "");
  }
  if (!values) return null;
  const options = optionsOf(metric, content);
  const names = (places: readonly number[]): string[] => places.map((place) => named(values[place], texts));
  if (options) return options.map(([place, chosen]) => `${names([place])[0]}: ${texts.chosen[String(chosen)]}`).join(", ");
  if (layout.rows !== 1 || layout.width !== values.length) return null;
  if (layout.kind === "index") return content < values.length ? named(values[Number(content)], texts) : null;
  const said = names([...values.keys()].filter((place) => isSet(content, place)));
  if (said.length === 0 || said.length === values.length) return null;
  if (said.length > MOST) said.splice(MOST - 1, said.length, texts.more(said.length - MOST + 1));
  return [said.slice(0, -1).join(", "), said.at(-1)].filter(Boolean).join(texts.or);
}

/** The ends of the part of a range that a cell speaks for. */
function windowOf({ constants, range, scale }: SheetMetric, cell: number): string[] {
  const { blocks, length } = constants as { readonly blocks: number; readonly length: number };
  const [low, high] = range!.map(Number) as [number, number];
  const points = blocks * length;
  return [Math.max(0, cell - length + 1), Math.min(cell, points)].map((point) => {
    const share = point / points;
    return String(Number((scale === "log" ? low * (high / low) ** share : low + share * (high - low)).toPrecision(3)));
  });
}

const isSet = (bits: bigint, place: number): boolean => ((bits >> BigInt(place)) & 1n) === 1n;

/** The few options that a report is about, each with whether it says that it was chosen; null where a report is about all. */
function optionsOf(metric: SheetMetric, content: bigint): [number, boolean][] | null {
  if (!metric.mechanism.startsWith("sampled_")) return null;
  const width = BigInt(metric.layout.width);
  const [row, cell] = [Number(content / width), content % width];
  return groupOf(metric, row).map((option, i) => [option, isSet(cell, i)]);
}

/** Milliseconds after which the receipt looks again at what was sent. */
const EVERY = 2000;

/** Without a page, as where pages are rendered on a server, this module can be imported all the same. */
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

export class Receipt extends Base {
  /** Your words for the metrics, by id, in the language of the page; by default their descriptions. */
  questions: { readonly [metric: string]: string } = {};
  #texts: Texts = TEXTS;
  #telemetry: Client | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  #live: { switch: HTMLInputElement; status: HTMLElement; content: HTMLElement; shown: string } | undefined;

  /** The client whose receipt this is. */
  get telemetry(): Client | undefined {
    return this.#telemetry;
  }

  set telemetry(telemetry: { readonly options: unknown } | undefined) {
    this.#telemetry = telemetry as Client | undefined;
    void this.refresh();
  }

  get texts(): Texts {
    return this.#texts;
  }

  set texts(texts: Partial<Texts>) {
    this.#texts = { ...TEXTS, ...texts };
    this.#live = undefined;
    void this.refresh();
  }

  connectedCallback(): void {
    document.addEventListener("visibilitychange", this.#seen);
    this.#timer = setInterval(this.#seen, EVERY);
    void this.refresh();
  }

  disconnectedCallback(): void {
    document.removeEventListener("visibilitychange", this.#seen);
    clearInterval(this.#timer);
  }

  readonly #seen = (): void => {
    if (document.visibilityState === "visible") void this.refresh();
  };

  /** Show what is so now. */
  async refresh(): Promise<void> {
    const telemetry = this.#telemetry;
    if (!telemetry || !this.isConnected) return;
    this.#live ??= this.#made();
    const { disabled } = telemetry.stats();
    this.#live.switch.checked = telemetry.agreed();
    this.#live.switch.disabled = disabled !== null;
    if (disabled) this.#live.status.textContent = this.#texts.disabled + disabled;
    const content = await this.#content(telemetry);
    // What is read or selected stays, unless it is not true any more.
    const text = content.map((part) => part.outerHTML).join("");
    if (!this.#live || this.#live.shown === text) return;
    this.#live.shown = text;
    this.#live.content.replaceChildren(...content);
  }

  #made(): { switch: HTMLInputElement; status: HTMLElement; content: HTMLElement; shown: string } {
    const live = {
      switch: make("input", { type: "checkbox", role: "switch" }),
      status: make("p", { role: "status" }),
      content: make("div", {}),
      shown: "",
    };
    live.switch.addEventListener("change", () => void this.#turn(live.switch.checked));
    this.replaceChildren(make("p", {}, make("label", {}, live.switch, ` ${this.#texts.switch}`)), live.status, live.content);
    return live;
  }

  async #turn(consent: boolean): Promise<void> {
    this.dispatchEvent(new CustomEvent("deniable-consent", { bubbles: true, detail: { consent } }) satisfies Choice);
    await this.#telemetry!.setConsent(consent);
    this.#live!.status.textContent = this.#texts[consent ? "on" : "off"];
    await this.refresh();
  }

  async #content(telemetry: Client): Promise<HTMLElement[]> {
    const [texts, { registry, now = Date.now }] = [this.#texts, telemetry.options];
    const month = new Date(now()).toISOString().slice(0, 7);
    const nothing = { sent: [] as readonly Report[], waiting: 0, spent: 0 };
    const { sent, waiting, spent } = await Promise.all([telemetry.sent(), telemetry.waiting(), telemetry.spent(month)])
      .then(([sent, waiting, spent]) => ({ sent, waiting, spent: spent.month }))
      .catch(() => nothing); // where the browser refuses its database nothing was ever sent
    const percent = Math.floor((100 * Math.max(0, registry.budget.per_month - spent)) / (registry.budget.per_month || 1));
    const { off, disabled } = telemetry.stats();
    let shared: readonly string[] = [];
    const asked = await Promise.all(
      Object.entries(registry.metrics).map(async ([id, metric]) => {
        const explanation = await telemetry.explain(id);
        shared = explanation?.shared ?? shared;
        const words = explanation?.lines.join(" ") ?? texts.metricOff + (off[id] ?? disabled);
        return [this.#named(id, registry), answersOf(metric, texts), words];
      }),
    );
    const reports = sent.map((report) => [this.#named(report.metric, registry), report.period, this.#report(report, registry)]);
    return [
      make("p", {}, texts.left(percent, month)),
      make("p", {}, texts.waiting(waiting)),
      table(texts.asked, [texts.question, texts.answers, texts.reveals], asked),
      ...(shared.length ? [make("p", {}, shared.join(" "))] : []),
      reports.length ? table(texts.sent, [texts.question, texts.period, texts.report], reports) : make("p", {}, texts.nothing),
    ];
  }

  #named(id: string, { metrics }: Sheet): string {
    if (Object.hasOwn(this.questions, id)) return this.questions[id]!;
    return (Object.hasOwn(metrics, id) && metrics[id]!.description) || id;
  }

  #report({ metric: id, payload }: Report, registry: Sheet): Node {
    const metric = Object.hasOwn(registry.metrics, id) ? registry.metrics[id] : undefined;
    const answer = metric ? answerOf(metric, payload, this.#texts) : null;
    // A line may break within a long report, also on a telephone.
    const code = make("code", {}, ...(payload.match(/.{1,8}/g) ?? []).flatMap((part) => [part, make("wbr", {})]));
    return make("span", {}, ...(answer === null ? [] : [this.#texts.says(answer)]), this.#texts.bytes, code);
  }
}

if (globalThis.customElements && !customElements.get("deniable-receipt")) customElements.define("deniable-receipt", Receipt);

declare global {
  interface HTMLElementTagNameMap {
    "deniable-receipt": Receipt;
  }
}
