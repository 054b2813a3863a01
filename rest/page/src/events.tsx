// What happens, as it happens.

import type { EventBody } from "./api";
import { type Address, go, minuteMs, RANGES, stretchOf, write } from "./address";
import { count, plural, sentence, time } from "./format";
import { folded, type Happening, isBad } from "./happened";
import { Failure, Waiting } from "./parts";
import { EVENTS_MOST, type Events, keyOf } from "./stream";

export function EventLines({ events, isOpen }: { events: Happening[]; isOpen: boolean }) {
  if (!events.length) return isOpen ? <p class="note">Nothing is kept of the last 24 hours.</p> : <Waiting what="events" />;
  return (
    <ol class="lines">
      {events.map(({ event }) => (
        <li key={keyOf(event)}>
          <span class="text">
            <Time ms={event.at_ms} /> <span {...(isBad(event) ? { class: "bad" } : {})}>{where(event)}</span> {event.text}
          </span>
        </li>
      ))}
    </ol>
  );
}

/** What was written of one thing besides: shown when it is asked for. */
const Also = ({ also }: { also: EventBody[] }) =>
  also.length ? (
    <details>
      <summary>{plural(also.length, "more record")} of it</summary>
      <ul>
        {also.map((one) => (
          <li key={keyOf(one)}>
            <Time ms={one.at_ms} /> {one.text}
          </li>
        ))}
      </ul>
    </details>
  ) : null;

/** Says which events are not among those that are shown. */
export const Unread = ({ events }: { events: Events }) =>
  events.unread ? <p class="note warn">Some events are not shown. {sentence(events.unread)}</p> : null;

/** Says that what is shown is not all that has happened until now. */
export const NoneNew = ({ events }: { events: Events }) =>
  events.error && events.events.length > 0 ? (
    <p class="note warn" role="status">
      New events are not shown at the moment. {events.error.message} The page asks again by itself.
    </p>
  ) : null;

/** Says where the list ends, if it was cut: what is filtered, or happened before, may be behind it. */
function Oldest({ events: { events } }: { events: Events }) {
  const oldest = events.at(-1);
  if (events.length < EVENTS_MOST || !oldest) return null;
  return (
    <p class="note warn">
      Only the newest {count(EVENTS_MOST)} are here, from {time(oldest.at_ms)} on. Older changes of a flow: <code>mm2py history FILE 'A-&gt;B'</code>
    </p>
  );
}

const Time = ({ ms }: { ms: number }) => <time>{time(ms)}</time>;

/** Whether something happened to the group of workers that runs a flow. */
const isOfWorkers = (event: EventBody, flow: string) =>
  event.flow === null && !!event.group && `on ${event.group}`.endsWith(` on ${flow.split("->")[1]}`);

const where = (event: EventBody) => event.flow ?? (event.group ? `group ${event.group}` : "");

export function EventsView({ address, events }: { address: Address; events: Events }) {
  const kinds = [...new Set(events.events.map((one) => one.kind))].sort();
  const flows = [...new Set(events.events.map((one) => one.flow).filter((one) => one !== null))].sort();
  const wanted = address.q.toLowerCase();
  const fitting = events.events.filter(
    (one) =>
      (!address.show || one.kind === address.show) &&
      (!address.flow || one.flow === address.flow || isOfWorkers(one, address.flow)) &&
      (!wanted || `${one.text} ${one.kind}`.toLowerCase().includes(wanted)),
  );
  const nowMs = Date.now();
  const within = ([fromMs, toMs]: [number, number]) => fitting.filter((one) => fromMs <= one.at_ms && one.at_ms <= toMs);
  const shown = folded(within(stretchOf(address, nowMs)));
  const isStretch = !!(address.from || address.to);
  const set = (part: Partial<Address>) => go({ ...address, ...part }, { replace: true });
  return (
    <>
      <h1>Events</h1>
      <div class="filters">
        <nav aria-label="Time of the events">
          {RANGES.map((range) => (
            <a
              key={range}
              href={write({ ...address, range, from: "", to: "" })}
              {...(range === address.range && !isStretch ? { "aria-current": "page" as const } : {})}
            >
              {range} <span class="muted">{count(folded(within(stretchOf({ range, from: "", to: "" }, nowMs))).length)}</span>
            </a>
          ))}
        </nav>
        <Minute title="From" value={address.from} onChange={(from) => set({ from })} />
        <Minute title="to" value={address.to} onChange={(to) => set({ to })} />
        <span class="muted">UTC; 24 hours are kept</span>
      </div>
      <div class="filters">
        <label>
          Kind{" "}
          <select value={address.show} onChange={(event) => set({ show: event.currentTarget.value })}>
            <option value="">all</option>
            {[...new Set([...kinds, ...(address.show ? [address.show] : [])])].map((kind) => (
              <option key={kind}>{kind}</option>
            ))}
          </select>
        </label>
        <label>
          Flow{" "}
          <select value={address.flow} onChange={(event) => set({ flow: event.currentTarget.value })}>
            <option value="">all</option>
            {[...new Set([...flows, ...(address.flow ? [address.flow] : [])])].map((flow) => (
              <option key={flow}>{flow}</option>
            ))}
          </select>
        </label>
        <label>
          Text <input type="search" value={address.q} onInput={(event) => set({ q: event.currentTarget.value })} />
        </label>
        <span class="muted">
          {plural(shown.length, "line")}
          {events.isOpen && !address.to ? "; new ones appear by themselves" : ""}
        </span>
      </div>
      <NoneNew events={events} />
      <Unread events={events} />
      <Oldest events={events} />
      {events.error && !events.events.length ? (
        <Failure error={events.error} what="events" />
      ) : !events.isOpen && !events.events.length ? (
        <Waiting what="events" />
      ) : (
        <ol class="lines events" aria-label="Events, the newest first">
          {shown.map(({ event, also }) => (
            <li key={keyOf(event)}>
              <Time ms={event.at_ms} />
              <span>{where(event)}</span>
              <span class={isBad(event) ? "bad" : "muted"}>{event.kind}</span>
              <span>
                {event.text}
                <Also also={also} />
              </span>
            </li>
          ))}
          {!shown.length && <li class="none">No event is kept that fits{isStretch ? "" : `, of the last ${address.range}`}.</li>}
        </ol>
      )}
    </>
  );
}

/** A field for a minute of UTC. What is typed counts when it is a whole one. */
const Minute = (props: { title: string; value: string; onChange: (value: string) => void }) => (
  <label>
    {props.title}{" "}
    <input
      type="datetime-local"
      value={props.value.slice(0, 16)}
      onChange={({ currentTarget: { value } }) => (value === "" || minuteMs(value) !== null) && props.onChange(value.slice(0, 16))}
    />
  </label>
);
