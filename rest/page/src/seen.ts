// What this page has seen of a lag, for sparklines, and for charts where the worker keeps no history.

const KEPT_MS = 3_600_000;
const STEP_MS = 10_000;
export const SPARK_POINTS = 30;

export interface Sample {
  atMs: number;
  records: number | null;
  seconds: number | null;
}

const kept = new Map<string, Sample[]>();

/**
 * Keep a sample.
 *
 * `everyMs`: how far samples are apart while the page is seen. Where it was not, there is a gap, and no line over it.
 * `most`: how many samples to keep, besides those of the last hour alone.
 */
export function note(name: string, sample: Sample, everyMs: number, most = Infinity) {
  const samples = kept.get(name) ?? [];
  kept.set(name, samples);
  const last = samples.at(-1);
  if (last?.atMs === sample.atMs) return;
  if (last && sample.atMs - last.atMs > 3 * everyMs) samples.push({ ...sample, records: null, seconds: null });
  samples.push(sample);
  while (samples[0] && (samples.length > most || samples[0].atMs < sample.atMs - KEPT_MS)) samples.shift();
}

/** Drop what was seen of all that begins with a name. */
export function forget(prefix: string) {
  for (const name of [...kept.keys()]) if (name.startsWith(prefix)) kept.delete(name);
}

/** The last records behind, at most one for each look. */
export const spark = (name: string): (number | null)[] =>
  (kept.get(name) ?? []).slice(-SPARK_POINTS).map((one) => one.records);

/** An even grid over the last hour, null where this page has not looked. */
export function grid(name: string, nowMs: number) {
  const to = Math.ceil(nowMs / STEP_MS);
  const from = to - KEPT_MS / STEP_MS;
  const empty = () => new Array<number | null>(to - from + 1).fill(null);
  const found = { timesMs: empty().map((_, index) => (from + index) * STEP_MS), records: empty(), seconds: empty() };
  for (const one of kept.get(name) ?? []) {
    const index = Math.floor(one.atMs / STEP_MS) - from;
    if (index < 0 || index > to - from) continue;
    found.records[index] = larger(found.records[index], one.records);
    found.seconds[index] = larger(found.seconds[index], one.seconds);
  }
  return found;
}

const larger = (a: number | null | undefined, b: number | null) => (a == null ? b : b == null ? a : Math.max(a, b));
