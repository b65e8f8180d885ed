/** A registry from the server: signed, and only ever stricter than the app's own. Apps that pin a key load it. */

import type { lesser } from "./device/limits.js";
import type { Limits, Served, Store } from "./device/state.js";
import type { jitter } from "./noise/chance.js";
import type { Sheet } from "./sheet.js";
import type { Sender } from "./wire/sender.js";

const HOUR = 3_600_000;
const MOST = 2 ** 20; // characters of a text
const ID = /^(?=.{1,80}$)[a-z][a-z0-9_]*([.-][a-z0-9_]+)*$/;
const SAMPLE = /^(1|0\.\d{0,29}[1-9])$/;
const MEMBERS = "format,restriction,signature";

interface Checked {
  readonly text: string;
  readonly until: string | null;
  readonly said: Restriction;
}

interface Restriction {
  readonly app: string;
  readonly revision: number;
  readonly limits: Limits;
}

const isSample = (text: unknown): boolean => typeof text === "string" && SAMPLE.test(text);
const dayOf = (moment: number): string => new Date(moment).toISOString().slice(0, 10);
const isDay = (text: unknown): boolean => {
  const date = new Date(typeof text === "string" && text >= "0001" ? text : NaN);
  return !Number.isNaN(date.getTime()) && dayOf(date.getTime()) === text;
};

/** Read the text of a restriction, which has one form; null for any other. */
export function read(text: string): Restriction | null {
  try {
    const { app, metrics, revision } = JSON.parse(text) as { app: string; metrics: Limits; revision: number };
    const ids = Object.keys(metrics).sort();
    const limits: Limits = Object.fromEntries(ids.map((id) => [id, { sample: metrics[id]!.sample, until: metrics[id]!.until }]));
    const right =
      text === JSON.stringify({ app, metrics: limits, revision }) &&
      [app, ...ids].every((id) => typeof id === "string" && ID.test(id)) &&
      Object.values(limits).every(({ sample, until }) => isSample(sample) && (until === null || isDay(until))) &&
      Number.isSafeInteger(revision) &&
      revision > 0;
    return right ? { app, revision, limits } : null;
  } catch {
    return null;
  }
}

/** Read base64 that is written in the one way that there is. */
function bytesOf(written: unknown, size: number): Uint8Array<ArrayBuffer> {
  const raw = typeof written === "string" ? atob(written) : "";
  if (raw.length !== size || btoa(raw) !== written) throw new TypeError("no base64 of so many bytes");
  return Uint8Array.from(raw, (each) => each.charCodeAt(0));
}

/** Whether a signature is of a text and its last day, by a key. It throws where a browser cannot say. */
export async function isSigned(key: string, text: string, signature: unknown, until: string | null): Promise<boolean> {
  const imported = await crypto.subtle.importKey("raw", bytesOf(key, 32), "Ed25519", false, ["verify"]);
  const header = `deniable restriction 1${until === null ? "" : ` until ${until}`}\n`;
  return crypto.subtle.verify("Ed25519", imported, bytesOf(signature, 64), new TextEncoder().encode(header + text));
}

const wrong = (fault: string): string => `the served registry cannot be used: ${fault}`;

/** What an answer that claims to be a served registry says, and why it must not be used. */
async function checked(content: unknown, key: string, registry: Sheet): Promise<Checked | string | null> {
  if (typeof content !== "object" || content === null || !("restriction" in content || "signature" in content)) return null;
  const envelope: { readonly [member: string]: unknown } = { ...content };
  const { restriction, signature, valid_until: until = null } = envelope;
  const members = Object.keys(envelope).filter((member) => member !== "valid_until");
  const formed = members.sort().join() === MEMBERS && envelope["format"] === 1 && typeof restriction === "string" && restriction.length <= MOST;
  if (!formed || ("valid_until" in envelope && !isDay(until))) return wrong("it has another form");
  try {
    if (!(await isSigned(key, restriction, signature, until as string | null))) return wrong("its signature is of another text, or by another key");
  } catch {
    return wrong("its signature cannot be checked here");
  }
  const said = read(restriction);
  if (!said) return wrong("its text has another form");
  if (said.app !== registry.app) return wrong(`it is for app "${said.app}"`);
  if (said.revision < registry.revision) return wrong("its revision is below that of the app's registry");
  return { text: restriction, until: until as string | null, said };
}

/** The metrics that both leave on. */
const both = (one: Limits, other: Limits, { lesser }: Tools): Limits =>
  Object.fromEntries(
    Object.entries(one).flatMap(([id, limit]) => (Object.hasOwn(other, id) ? [[id, lesser(limit, other[id]!)]] : [])),
  );

/** What the package has elsewhere. It is handed over, and not imported: so no bundler takes the package's main part apart. */
export interface Tools {
  readonly lesser: typeof lesser;
  readonly jitter: typeof jitter;
}

/** Ask which metrics stay on, if a day has passed. Return why nothing may be sent until the next start, or null. */
export async function ask(
  { registryKey: key, registry }: { readonly registryKey?: string; readonly registry: Sheet },
  store: Store,
  now: () => number,
  sender: Sender,
  tools: Tools,
): Promise<string | null> {
  if (!key) return null;
  const next = (hours: number): number => now() + hours * HOUR * (0.9 + 0.2 * tools.jitter());
  const today = dayOf(now());
  const due = await store.transact((state) => {
    const before = state.served;
    // Of another key nothing counts but the revision.
    const served = (state.served = before?.key === key ? before : fresh(key, before?.revision ?? 0));
    // Anyone who runs the server may hold a newer text back, to have devices report what was turned off before.
    if (served.until !== null && served.until < today) served.limits = served.least;
    if (served.next > now() && served.next < next(48)) return false; // later only if the clock was set back
    served.next = next(1);
    return true;
  });
  if (!due) return null;
  // The request is always the same. If it depended on what was served before, it could tell devices apart.
  const answer = await sender.request("/v1/registry", { headers: { Accept: "application/json" } }).catch(() => null);
  if (answer?.status !== 200) return null;
  const outcome = await checked(answer.content, key, registry);
  if (outcome === null || typeof outcome === "string") return outcome;
  const { text, until, said } = outcome;
  if (until !== null && until < today) return null;
  return store.transact((state) => {
    const served = state.served!;
    if (said.revision < served.revision) return wrong("its revision is below one that was served before");
    const again = text === served.text;
    if (said.revision === served.revision && served.text && !again) return wrong("another text of its revision was served before");
    state.served = {
      key,
      revision: said.revision,
      text,
      until: again && (served.until === null || (until !== null && until < served.until)) ? served.until : until,
      limits: said.limits,
      least: served.least ? both(served.least, said.limits, tools) : said.limits,
      next: next(24),
    };
    return null;
  });
}

const fresh = (key: string, revision: number): Served => ({ key, revision, text: "", until: null, limits: null, least: null, next: 0 });
