// Asks again and again, less often while there is no answer, and not at all while nobody sees the page.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";

const BACK_OFF_MOST_MS = 30_000;
const FRESH_MS = 12_000;

export interface Polled<T> {
  value: T | null;
  /** By this browser's clock: when the value came. */
  atMs: number | null;
  /** Why there is no newer value. Null: the last request was answered. */
  error: ApiError | null;
  /** A value that is older than this is not current any more. */
  freshMs: number;
}

const NOTHING = { value: null, atMs: null, error: null, freshMs: FRESH_MS };

/** How long to wait after so many failures in a row; spread, so that many pages do not ask at once. */
export const backOffMs = (failures: number, random = Math.random()) =>
  Math.min(BACK_OFF_MOST_MS, 1000 * 2 ** failures) * (0.75 + random / 2);

/** Resolve when the page is seen, which may be now. */
export function seen(signal: AbortSignal): Promise<void> {
  const isSeen = () => document.visibilityState === "visible" || signal.aborted;
  if (isSeen()) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (!isSeen()) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}

export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}

/** What each refusal of the session calls. */
export const session = { lost: () => {} };

/**
 * Ask for something every few seconds while `key` is the same. A list that takes long is asked for less often.
 *
 * `load` may give a first part of the value before it has all of it.
 */
export function usePolled<T>(
  key: string | null,
  everyMs: number,
  load: (signal: AbortSignal, part: (value: T) => void) => Promise<T>,
): Polled<T> {
  const [state, setState] = useState<Polled<T> & { key: string | null }>({ key, ...NOTHING });
  const loading = useRef(load);
  loading.current = load;
  useEffect(() => {
    if (key === null) return;
    const ending = new AbortController();
    const { signal } = ending;
    const set = (value: T, nextMs = everyMs) =>
      signal.aborted ||
      setState({ key, value, atMs: Date.now(), error: null, freshMs: Math.max(FRESH_MS, 1.5 * nextMs) });
    const run = async () => {
      let failures = 0;
      let isWhole = false;
      while (!signal.aborted) {
        await seen(signal);
        if (signal.aborted) return;
        const begun = performance.now();
        let waitMs = everyMs;
        try {
          const value = await loading.current(signal, (part) => isWhole || set(part));
          const tookMs = performance.now() - begun;
          waitMs = Math.max(everyMs, 3 * tookMs);
          set(value, waitMs + tookMs);
          isWhole = true;
          failures = 0;
        } catch (error) {
          if (signal.aborted) return;
          const told = error instanceof ApiError ? error : new ApiError(0, String(error));
          if (told.status === 401) session.lost();
          failures += 1;
          waitMs = told.status === 403 || told.status === 404 ? BACK_OFF_MOST_MS : backOffMs(failures);
          setState((before) =>
            before.key === key ? { ...before, error: told } : { key, ...NOTHING, error: told },
          );
        }
        await sleep(waitMs, signal);
      }
    };
    void run();
    return () => ending.abort();
  }, [key, everyMs]);
  return state.key === key ? state : NOTHING;
}

/** The time now, told again every second. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
