// What happens, as it happens.

import type { EventBody } from "./api";
import { type Address, go } from "./address";
import { count, sentence, time } from "./format";
import { Failure, Waiting } from "./parts";
import { EVENTS_MOST, type Events, keyOf } from "./stream";

const BAD = new Set(["gap", "quarantined", "member.evicted", "events.missed"]);

export function EventLines({ events, isOpen }: { events: EventBody[]; isOpen: boolean }) {
  if (!events.length) return isOpen ? <p class="note">Nothing is kept of the last 24 hours.</p> : <Waiting what="events" />;
  return (
    <ol class="lines">
      {events.map((one) => (
        <li key={keyOf(one)}>
          <Time ms={one.at_ms} /> <span {...(BAD.has(one.kind) ? { class: "bad" } : {})}>{where(one)}</span> {one.text}
        </li>
      ))}
    </ol>
  );
}

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

const where = (event: EventBody) => event.flow ?? (event.group ? `group ${event.group}` : "");

export function EventsView({ address, events }: { address: Address; events: Events }) {
  const kinds = [...new Set(events.events.map((one) => one.kind))].sort();
  const flows = [...new Set(events.events.map((one) => one.flow).filter((one) => one !== null))].sort();
  const wanted = address.q.toLowerCase();
  const shown = events.events.filter(
    (one) =>
      (!address.show || one.kind === address.show) &&
      (!address.flow || one.flow === address.flow) &&
      (!wanted || `${one.text} ${one.kind}`.toLowerCase().includes(wanted)),
  );
  const set = (part: Partial<Address>) => go({ ...address, ...part }, { replace: true });
  return (
    <>
      <h1>Events of the last 24 hours</h1>
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
          {shown.length} of {events.events.length}
          {events.isOpen ? "; new ones appear by themselves" : ""}
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
          {shown.map((one) => (
            <li key={keyOf(one)}>
              <Time ms={one.at_ms} />
              <span>{where(one)}</span>
              <span class={BAD.has(one.kind) ? "bad" : "muted"}>{one.kind}</span>
              <span>{one.text}</span>
            </li>
          ))}
          {!shown.length && <li>No event of the last 24 hours is kept that fits.</li>}
        </ol>
      )}
    </>
  );
}
