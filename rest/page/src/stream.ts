// The stream of events. It is read by fetch and not by EventSource, which cannot send our header, or say why it failed.

import { useEffect, useState } from "preact/hooks";
import { ApiError, type EventBody } from "./api";
import { backOffMs, seen, session, sleep } from "./poll";

export const EVENTS_MOST = 1000;
const SILENCE_MOST_MS = 40_000;

export interface Events {
  /** The newest first. */
  events: EventBody[];
  error: ApiError | null;
  isOpen: boolean;
}

interface Frame {
  id: string | null;
  data: string | null;
}

/** Read one frame of a stream: what stands between two empty lines. */
export function parse(text: string): Frame {
  const frame: Frame = { id: null, data: null };
  for (const line of text.split("\n")) {
    const [name, ...rest] = line.split(":");
    const value = rest.join(":").replace(/^ /, "");
    if (name === "id") frame.id = value;
    if (name === "data") frame.data = frame.data === null ? value : `${frame.data}\n${value}`;
  }
  return frame;
}

async function listen(
  last: { id: string },
  signal: AbortSignal,
  told: (events: EventBody[]) => void,
  opened: () => void,
): Promise<void> {
  const headers: Record<string, string> = { Accept: "text/event-stream", "Mm2py-Page": "1" };
  if (last.id) headers["Last-Event-ID"] = last.id;
  const ending = new AbortController();
  const either = AbortSignal.any([signal, ending.signal]);
  let timer = setTimeout(() => ending.abort(), SILENCE_MOST_MS);
  try {
    const answer = await fetch("/v1/events?since=24h", { headers, signal: either, cache: "no-store" });
    if (!answer.ok || !answer.body) {
      const said = (await answer.json().catch(() => ({}))) as { message?: string };
      throw new ApiError(answer.status, said.message ?? `The worker answers with HTTP ${answer.status}.`);
    }
    opened();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => ending.abort(), SILENCE_MOST_MS);
      const parts = (text + value).split("\n\n");
      text = parts.pop() ?? "";
      const events: EventBody[] = [];
      for (const frame of parts.map(parse)) {
        if (frame.id) last.id = frame.id;
        if (frame.data) events.push(JSON.parse(frame.data) as EventBody);
      }
      if (events.length) told(events);
    }
  } finally {
    clearTimeout(timer);
  }
}

export function useEvents(enabled: boolean): Events {
  const [state, setState] = useState<Events>({ events: [], error: null, isOpen: false });
  useEffect(() => {
    if (!enabled) return;
    const ending = new AbortController();
    const { signal } = ending;
    const last = { id: "" };
    const run = async () => {
      let failures = 0;
      while (!signal.aborted) {
        await seen(signal);
        if (signal.aborted) return;
        const hidden = new AbortController();
        const look = () => document.visibilityState === "visible" || hidden.abort();
        document.addEventListener("visibilitychange", look);
        try {
          await listen(
            last,
            AbortSignal.any([signal, hidden.signal]),
            (events) =>
              setState((before) => ({
                ...before,
                events: [...before.events, ...events].sort((a, b) => b.at_ms - a.at_ms).slice(0, EVENTS_MOST),
              })),
            () => {
              failures = 0;
              setState((before) => ({ ...before, error: null, isOpen: true }));
            },
          );
          throw new ApiError(0, "The stream of events has ended.");
        } catch (error) {
          if (signal.aborted) return;
          if (!hidden.signal.aborted) {
            const told = error instanceof ApiError ? error : new ApiError(0, "The stream of events broke off.");
            if (told.status === 401) session.lost();
            failures += 1;
            setState((before) => ({ ...before, error: told, isOpen: false }));
          }
        } finally {
          document.removeEventListener("visibilitychange", look);
        }
        if (failures) await sleep(backOffMs(failures), signal);
      }
    };
    void run();
    return () => ending.abort();
  }, [enabled]);
  return state;
}
