// The stream of events. It is read by fetch and not by EventSource, which cannot send our header, or say why it failed.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, type EventBody, flowPath, get, type HistoryBody } from "./api";
import { backOffMs, seen, session, sleep, usePolled } from "./poll";

export const EVENTS_MOST = 1000;
const SILENCE_MOST_MS = 40_000;

export interface Events {
  /** The newest first. */
  events: EventBody[];
  error: ApiError | null;
  isOpen: boolean;
  /** What cannot be read now, so that its events are not among them; empty: nothing. */
  unread: string;
}

const NOTHING: Events = { events: [], error: null, isOpen: false, unread: "" };
const AHEAD_MOST_MS = 60_000;
const HISTORIES_EVERY_MS = 30_000;

export const keyOf = (event: EventBody) => `${event.at_ms} ${event.kind} ${event.flow ?? ""} ${event.text}`;

/** The newest first, and each once. */
function merged(events: EventBody[], others: EventBody[]): EventBody[] {
  const found = new Map([...events, ...others].map((one) => [keyOf(one), one]));
  return [...found.values()].sort((a, b) => b.at_ms - a.at_ms).slice(0, EVENTS_MOST);
}

/** An event of a machine whose clock is ahead would stand above all that happens from now on. */
const clamped = <T extends { at_ms: number }>(event: T): T => ({
  ...event,
  at_ms: event.at_ms > Date.now() + AHEAD_MOST_MS ? Date.now() : Math.max(0, event.at_ms),
});

interface Frame {
  id: string | null;
  data: string | null;
  /** What the comment in it says cannot be read; null: it has none. */
  unread: string | null;
}

/** Read one frame of a stream: what stands between two empty lines. */
export function parse(text: string): Frame {
  const frame: Frame = { id: null, data: null, unread: null };
  for (const line of text.split("\n")) {
    const [name, ...rest] = line.split(":");
    const value = rest.join(":").replace(/^ /, "");
    if (name === "" && value.startsWith("alive")) frame.unread = value.replace(/^alive(; )?/, "");
    if (name === "id") frame.id = value;
    if (name === "data") frame.data = frame.data === null ? value : `${frame.data}\n${value}`;
  }
  return frame;
}

async function listen(
  last: { id: string },
  signal: AbortSignal,
  told: (events: EventBody[]) => void,
  notRead: (unread: string) => void,
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
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let isFirst = true; // it comes when the worker has read the topics: only then it is known what there is
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
        if (frame.unread !== null) notRead(frame.unread);
        if (frame.data) events.push(clamped(JSON.parse(frame.data) as EventBody));
      }
      if (events.length) told(events);
      if (isFirst) opened();
      isFirst = false;
    }
  } finally {
    clearTimeout(timer);
  }
}

export function useEvents(enabled: boolean): Events {
  const [state, setState] = useState<Events>(NOTHING);
  const last = useRef({ id: "" });
  useEffect(() => {
    if (!enabled) return;
    const ending = new AbortController();
    const { signal } = ending;
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
            last.current,
            AbortSignal.any([signal, hidden.signal]),
            (events) =>
              setState((before) => ({
                ...before,
                events: merged(before.events, events),
              })),
            (unread) => setState((before) => (before.unread === unread ? before : { ...before, unread })),
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

/** What happened to the groups of workers, by the kinds of events. */
const OF_GROUPS = /^(member|leader)\./;

/** Add what the histories of flows keep, which the stream does not tell of before it began: members and leaders too. */
export function useHistories(flows: string[], streamed: Events): Events {
  const histories = usePolled(flows.length ? flows.join(" ") : null, HISTORIES_EVERY_MS, async (signal) => {
    const events: EventBody[] = [];
    const unread: string[] = [];
    const readOne = async (flow: string) => {
      try {
        const { body } = await get<HistoryBody>(`${flowPath(flow)}/history?from=24h&step=3600`, signal);
        if (body.problem) unread.push(`the history of ${flow}: ${body.problem}`);
        for (const one of body.events.map(clamped)) {
          const ofGroup = OF_GROUPS.test(one.kind);
          events.push({ ...one, flow: ofGroup ? null : flow, group: ofGroup ? `on ${flow.split("->")[1]}` : null });
        }
      } catch (error) {
        if (!(error instanceof ApiError) || error.status === 401) throw error;
        unread.push(`the history of ${flow}: ${error.message}`);
      }
    };
    await Promise.all(flows.map(readOne));
    return { events, unread };
  });
  return useMemo(() => {
    const { events, unread } = histories.value ?? { events: [], unread: [] };
    const silent = histories.error ? ["the histories of flows"] : unread;
    return {
      ...streamed,
      events: merged(events, streamed.events), // the stream names the group
      unread: [streamed.unread, ...silent].filter(Boolean).join("; "),
    };
  }, [histories.value, histories.error, streamed]);
}
