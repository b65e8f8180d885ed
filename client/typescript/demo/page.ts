/** The page of `deniable demo --web`: three questions, the coins, what left, and the chart in which an answer drowns. */

import { position } from "../src/wire/answers.js";
import { pack } from "../src/wire/batch.js";
import { readDsn } from "../src/wire/dsn.js";
import { periodOf } from "../src/wire/periods.js";
import { Sender } from "../src/wire/sender.js";
import { MemoryStore, type Waiting } from "../src/device/state.js";
import { oracleOf } from "../src/noise/mechanisms.js";
import { answerOf } from "../src/receipt.js";
import type { Period, SheetMetric, Value } from "../src/sheet.js";
import { Coins, type Toss } from "./coins.js";
import { count, influence, type Counted } from "./count.js";
import registry from "./registry.js";

const OTHERS = 2000;
/** How often a server is asked whether it has counted the visitor, and how long it is given between two questions. */
const TRIES = 120;
const PAUSE_MS = 500;
/** What the simulated others would truly say, in parts of all. */
const TRUTH: { readonly [metric: string]: readonly number[] } = {
  "policy.read": [0.85, 0.15],
  "ui.theme": [0.35, 0.45, 0.2],
  "tabs.open": [0.25, 0.4, 0.25, 0.1],
};
const QUESTIONS: { readonly [metric: string]: string } = {
  "policy.read": "Did you ever read a privacy policy to its end?",
  "ui.theme": "Which theme do you use?",
  "tabs.open": "How many tabs are open in this browser?",
};
const SVG = "http://www.w3.org/2000/svg";

const METRICS = Object.entries(registry.metrics as { readonly [metric: string]: SheetMetric });
const WORDS: { readonly [answer: string]: string } = { true: "yes", false: "no" };
const named = (answer: unknown): string => WORDS[String(answer)] ?? String(answer);
const percent = (share: number, digits = 1): string => `${(100 * share).toFixed(digits)}%`;

function make(name: string, attributes: { readonly [name: string]: string }, ...children: (Node | string)[]): HTMLElement {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
}

interface Drawn {
  readonly payload: string;
  readonly tosses: readonly Toss[];
}

/** Randomise an answer as the SDK does, with the coins to be seen. */
function randomized(metric: SheetMetric, answer: Value): Drawn {
  const coins = new Coins();
  const payload = pack(metric.layout, ...oracleOf(metric).randomize(position(metric, answer)!, coins));
  coins.wipe();
  return { payload, tosses: coins.tosses };
}

/** The answer of one of the others: so many of them give each as `TRUTH` says. */
function answerOfOther(metric: SheetMetric, truth: readonly number[], number: number): Value {
  let end = 0;
  const place = truth.findIndex((share) => number < (end += share * OTHERS));
  return metric.values![place < 0 ? truth.length - 1 : place]!;
}

interface Crowd {
  /** Add a report of the visitor. */
  add(reports: { readonly [metric: string]: string }): Promise<void>;
  /** Count all. */
  counted(): Promise<{ readonly [metric: string]: Counted }>;
}

/** The others, simulated and counted in this page. */
function simulated(): Crowd {
  const payloads = METRICS.map(([id, metric]) =>
    Array.from({ length: OTHERS }, (_, number) => randomized(metric, answerOfOther(metric, TRUTH[id]!, number)).payload),
  );
  return {
    async add(reports) {
      METRICS.forEach(([id], i) => payloads[i]!.push(reports[id]!));
    },
    async counted() {
      return Object.fromEntries(METRICS.map(([id, metric], i) => [id, count(metric, payloads[i]!)]));
    },
  };
}

/** The others, counted by the server that `deniable demo --web` has started. */
function served(dsn: string): Crowd {
  const store = new MemoryStore();
  const counts = { sent: 0, rejected: 0, dropped: {} };
  const sender = new Sender(readDsn(dsn), store, counts, () => true, Date.now, (input, init) => fetch(input, init));
  let people = 0; // who are counted, and the visitor, whose reports a worker counts a moment after they were accepted
  return {
    async add(reports) {
      await store.transact((state) => {
        for (const [metric, { version, fingerprint, period }] of METRICS) {
          const when = periodOf(Date.now(), period as Period);
          const report = { metric, version, fingerprint, period: when, segment: "", payload: reports[metric]! };
          state.waiting.push(JSON.stringify({ ...report, due: 0, wait: 0 } satisfies Waiting));
        }
      });
      await sender.flush();
      people += 1;
    },
    async counted() {
      for (let tried = 1; ; tried++) {
        const counted = (await (await fetch("estimates.json")).json()) as { [metric: string]: Counted };
        const fewest = Math.min(...Object.values(counted).map(({ n }) => n));
        if (fewest >= people || tried === TRIES) {
          people = fewest;
          return counted;
        }
        await new Promise((later) => setTimeout(later, PAUSE_MS));
      }
    },
  };
}

function questions(): HTMLElement[] {
  return METRICS.map(([id, metric]) =>
    make(
      "fieldset",
      {},
      make("legend", {}, QUESTIONS[id]!),
      ...metric.values!.map((answer, place) => {
        const radio = make("input", { type: "radio", name: id, value: String(place), ...(place ? {} : { checked: "" }) });
        return make("label", {}, radio, ` ${named(answer)}`);
      }),
    ),
  );
}

function told(toss: Toss): string {
  if (toss.chance === null) return toss.sides === 1 ? "" : `die with ${toss.sides} sides, thrown in either case: ${toss.result + 1}`;
  return `coin that says “truth” ${percent(toss.chance, 0)} of the time: ${toss.result ? "truth" : "another answer"}`;
}

function left(rows: readonly { readonly id: string; readonly metric: SheetMetric; readonly drawn: Drawn }[]): HTMLElement {
  const head = ["Question", "How the coins fell", "What left", "It says"].map((text) => make("th", { scope: "col" }, text));
  const body = rows.map(({ id, metric, drawn }) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, QUESTIONS[id]!),
      make("td", {}, drawn.tosses.map(told).filter(Boolean).join("; ")),
      make("td", {}, make("code", {}, drawn.payload)),
      make("td", {}, named(answerOf(metric, drawn.payload))),
    ),
  );
  return make(
    "table",
    {},
    make("caption", {}, "What left this page about you"),
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...body),
  );
}

function bar({ share, low, high }: { readonly share: number; readonly low: number; readonly high: number }): SVGElement {
  const inside = (x: number): string => String(100 * Math.min(1, Math.max(0, x)));
  const picture = document.createElementNS(SVG, "svg");
  const draw = (name: string, attributes: { readonly [name: string]: string }): void => {
    const element = document.createElementNS(SVG, name);
    for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
    picture.append(element);
  };
  picture.setAttribute("viewBox", "0 0 100 8");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("aria-hidden", "true");
  draw("rect", { class: "share", x: "0", y: "1", width: inside(share), height: "6" });
  draw("rect", { class: "doubt", x: inside(low), y: "3", width: String(Number(inside(high)) - Number(inside(low))), height: "2" });
  return picture;
}

function chart(id: string, metric: SheetMetric, counted: Counted): HTMLElement {
  const rows = counted.shares.map((each, place) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, named(metric.values![place])),
      make("td", { class: "picture" }, bar(each)),
      make("td", {}, percent(each.share)),
      make("td", {}, `± ${((100 * (each.high - each.low)) / 2).toFixed(1)}`),
    ),
  );
  const head = ["Answer", "", "Share", "Interval, in points"].map((text) =>
    make(text ? "th" : "td", text ? { scope: "col" } : {}, text),
  );
  const moved = (100 * influence(metric, counted.n)).toFixed(2);
  const doubt = Math.max(...counted.shares.map(({ low, high }) => (100 * (high - low)) / 2)).toFixed(1);
  return make(
    "section",
    { class: "chart" },
    make(
      "table",
      {},
      make("caption", {}, `${QUESTIONS[id]!} Estimated of ${counted.n.toLocaleString("en")} people`),
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, ...rows),
    ),
    make("p", {}, `One report moves a bar by ${moved} points. Chance moves it by up to ${doubt}.`),
  );
}

async function begin(): Promise<void> {
  const form = document.querySelector("form")!;
  const [report, charts] = [document.getElementById("left")!, document.getElementById("charts")!];
  const { dsn } = document.documentElement.dataset;
  const crowd = dsn ? served(dsn) : simulated();
  const show = async (): Promise<void> => {
    const counted = await crowd.counted();
    charts.replaceChildren(...METRICS.map(([id, metric]) => chart(id, metric, counted[id]!)));
  };
  document.getElementById("questions")!.replaceChildren(...questions());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const answers = new FormData(form);
    const rows = METRICS.map(([id, metric]) => {
      const answer = metric.values![Number(answers.get(id))]!;
      return { id, metric, drawn: randomized(metric, answer) };
    });
    report.replaceChildren(left(rows));
    form.querySelector("button")!.textContent = "Toss again, as one more person";
    void crowd.add(Object.fromEntries(rows.map(({ id, drawn }) => [id, drawn.payload]))).then(show);
  });
  await show();
  form.hidden = false;
}

void begin();
