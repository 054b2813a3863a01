// What the page shows is in its address, so that it can be sent to a colleague.

import { useSyncExternalStore } from "preact/compat";

export const VIEWS = ["flows", "topics", "groups", "gaps", "recovery", "workers", "events", "settings"] as const;
/** Of one flow, which a user of some flows may see as well. */
export const OF_A_FLOW: readonly View[] = ["topics", "groups", "gaps", "recovery", "settings"];
export type View = (typeof VIEWS)[number];
export const RANGES = ["1h", "6h", "24h"] as const;

export interface Address {
  view: View;
  flow: string;
  topic: string;
  group: string;
  /** Filters a list by name. */
  q: string;
  /** Which topics are listed. */
  show: string;
  sort: string;
  range: string;
  /** Instead of a range: a stretch of time, in UTC and to the minute, as 2026-11-29T12:00. */
  from: string;
  to: string;
}

const DEFAULTS: Address = { view: "flows", flow: "", topic: "", group: "", q: "", show: "", sort: "", range: "1h", from: "", to: "" };

export function read(search: string): Address {
  const given = new URLSearchParams(search);
  const found = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS) as (keyof Address)[]) {
    const value = given.get(name);
    if (value !== null) (found as Record<string, string>)[name] = value;
  }
  if (!VIEWS.includes(found.view)) found.view = "flows";
  if (!(RANGES as readonly string[]).includes(found.range)) found.range = "1h";
  if (minuteMs(found.from) === null) found.from = "";
  if (minuteMs(found.to) === null) found.to = "";
  return found;
}

export function write(address: Address): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(address)) {
    if (value !== DEFAULTS[name as keyof Address]) query.set(name, value);
  }
  const text = query.toString().replaceAll("%3E", ">");
  return text ? `/?${text}` : "/";
}

/** A minute in UTC as addresses and fields have it; null: it is none. */
export function minuteMs(text: string): number | null {
  const ms = /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text) ? Date.parse(`${text.slice(0, 16)}Z`) : NaN;
  return Number.isNaN(ms) ? null : ms;
}

export const minuteText = (ms: number) => new Date(ms).toISOString().slice(0, 16);

const RANGE_MS: Record<string, number> = { "1h": 3_600_000, "6h": 21_600_000, "24h": 86_400_000 };

/** The stretch of time that an address means; what begins or ends nowhere is bounded by the day that is kept. */
export function stretchOf({ range, from, to }: Pick<Address, "range" | "from" | "to">, nowMs: number): [number, number] {
  const [fromMs, toMs] = [minuteMs(from), minuteMs(to)];
  if (fromMs === null && toMs === null) return [nowMs - (RANGE_MS[range] ?? 0), Infinity];
  return [fromMs ?? 0, toMs === null ? Infinity : toMs + 59_999];
}

const listeners = new Set<() => void>();
const tell = () => listeners.forEach((one) => one());
addEventListener("popstate", tell);

export function go(address: Address, { replace = false } = {}) {
  const url = write(address);
  if (url === location.pathname + location.search) return;
  if (replace) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  tell();
}

const subscribe = (listener: () => void) => {
  listeners.add(listener);
  return () => void listeners.delete(listener);
};

export function useAddress(): Address {
  const search = useSyncExternalStore(subscribe, () => location.search);
  return read(search);
}

/** A view of its own, without the filters of the one before. */
export const at = (part: Partial<Address>): Address => ({ ...DEFAULTS, ...part });

/** Let plain clicks on our own links change the address without loading the page again. */
export function onClick(event: MouseEvent) {
  if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element).closest?.("a");
  if (!link || link.getAttribute("target")) return;
  const href = link.getAttribute("href");
  if (!href?.startsWith("/?") && href !== "/") return;
  event.preventDefault();
  go(read(href.slice(1)));
}
