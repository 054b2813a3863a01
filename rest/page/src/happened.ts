// What is made of events: which are bad, which belong together, and what is told of a stretch of time.

import type { EventBody, HistoryEvent } from "./api";

const BAD = new Set(["gap", "quarantined", "member.evicted", "events.missed"]);

/** Whether something has become worse. */
export function isBad({ kind, text }: Pick<HistoryEvent, "kind" | "text">): boolean {
  if (kind === "verdict") return !text.startsWith("safe");
  if (kind === "lag") return !text.startsWith("It keeps up");
  return BAD.has(kind);
}

/** One thing that has happened, with what else was written of it. */
export interface Happening {
  event: EventBody;
  /** The newest first. */
  also: EventBody[];
}

const CHANGES = new Set(["connector.state", "topic.state", "restart", "settings.changed", "group.moved", "log.level", "gap"]);
const TOGETHER_MS = 15_000;

export const isOfSession = (event: EventBody) => event.kind === "audit" && / asked for \w+ \/session\b/.test(event.text);

const isDone = (event: EventBody) => event.kind === "audit" && / done, \d+\.$/.test(event.text) && !/ not done, /.test(event.text);
const userOf = (event: EventBody) => event.text.split(" asked for ")[0];

/** What an event is about, as far as its text tells: a topic, a connector or a partition. */
const subjectOf = (event: EventBody) => event.text.split(/ is to | is not copied|: /)[0] ?? "";

/** Whether `other` was written because of `change`, which an operator has asked for. */
function belongs(other: EventBody, change: EventBody): boolean {
  if (other.flow !== change.flow || Math.abs(other.at_ms - change.at_ms) > TOGETHER_MS) return false;
  const subject = subjectOf(change);
  const topic = subject.replace(/-\d+$/, "");
  if (isDone(other)) {
    const call = decoded(other.text);
    return change.kind === "settings.changed" ? call.includes("/config") : call.includes(`/${subject}/`) || call.includes(`/topics/${topic}/`);
  }
  return other.kind === "not-copied" && change.kind === "topic.state" && other.text.startsWith(`${topic}: `) && other.at_ms >= change.at_ms - 1000;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * Fold what belongs together: a change with the call that asked for it and with what workers said of it, and sessions
 * of one user that follow each other.
 */
export function folded(events: EventBody[]): Happening[] {
  const taken = new Map<EventBody, Happening>();
  const changes = events.filter((one) => CHANGES.has(one.kind)).map((event): Happening => ({ event, also: [] }));
  for (const other of events) {
    if (CHANGES.has(other.kind)) continue;
    const found = changes.find(({ event }) => belongs(other, event));
    if (!found) continue;
    found.also.push(other);
    taken.set(other, found);
  }
  const byEvent = new Map(changes.map((one) => [one.event, one]));
  const found: Happening[] = [];
  for (const event of events) {
    if (taken.has(event)) continue;
    const last = found.at(-1);
    if (last && isOfSession(event) && isOfSession(last.event) && userOf(event) === userOf(last.event)) last.also.push(event);
    else found.push(byEvent.get(event) ?? { event, also: [] });
  }
  return found;
}
