/** The sheet of a registry, as `deniable registry show --json` writes it. */

export type Period = "hour" | "day" | "week" | "month";
export type Value = string | boolean | readonly string[];

export interface Layout {
  readonly kind: string;
  readonly rows: number;
  readonly width: number;
  readonly row_bytes: number;
  readonly payload_bytes: number;
}

export interface Allowance {
  readonly cost: number;
  readonly per_period: number;
  readonly month: number;
  readonly lifetime: number | null;
  readonly answers: number | null;
  readonly answers_ever: number | null;
}

export interface SheetMetric {
  readonly off: string | null;
  readonly description: string;
  readonly version: number;
  readonly type: string;
  readonly values: readonly Value[] | null;
  readonly factors: readonly string[] | null;
  readonly max_length: number | null;
  readonly range: readonly string[] | null;
  readonly unit: string | null;
  readonly scale: string | null;
  readonly steps: number | null;
  readonly bins: number | null;
  readonly rounded: boolean;
  readonly none: string | null;
  readonly other: string | null;
  readonly period: string;
  readonly grace: string;
  readonly delay: string | null;
  readonly expires: string | null;
  readonly segments: readonly string[];
  readonly sample: string;
  readonly epsilon: string;
  readonly epsilon_permanent: string | null;
  /** What is claimed of reports that a relay mixes: these must be sealed. Null: they go to the server as they are. */
  readonly shuffled: { readonly min: number; readonly delta: string; readonly central: string } | null;
  readonly mechanism: string;
  readonly canonical: string;
  readonly fingerprint: string;
  readonly layout: Layout;
  readonly constants: { readonly [name: string]: unknown };
  readonly allowance: Allowance;
}

export interface Sheet {
  readonly format: number;
  readonly app: string;
  readonly revision: number;
  readonly segments: { readonly [name: string]: readonly string[] };
  readonly relay: { readonly operator: string; readonly key: string } | null;
  readonly budget: { readonly per_month: number; readonly lifetime: number };
  readonly metrics: { readonly [id: string]: SheetMetric };
}

/** What may be recorded of a metric. */
export type Answer<M extends SheetMetric> =
  | (M["type"] extends "boolean"
      ? boolean
      : M["type"] extends "string"
        ? string
        : M["type"] extends "key"
          ? bigint | number
          : M["type"] extends "number"
            ? number | bigint
            : M["values"] extends readonly (infer V)[]
              ? M["type"] extends "set"
                ? readonly V[] | ReadonlySet<V>
                : V
              : never)
  | (M["none"] extends null ? never : null);

/** The names of a sheet's metrics. */
export type Id<S extends Sheet> = Extract<keyof S["metrics"], string>;
