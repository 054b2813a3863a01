// The first screen: a sentence for each flow, what it was like in the last hour, and where it leads.

import type { Answer, ClusterBody, FlowBody } from "./api";
import { type Address, at } from "./address";
import { EventLines, NoneNew, Unread } from "./events";
import { atLeast, bytes, plural, seconds, time } from "./format";
import { folded, isOfSession } from "./happened";
import { FlowChart, Ranges } from "./history";
import { ClusterMap } from "./map";
import { Failure, Freshness, Link, Linked, PartlyKnown, useStale, Waiting } from "./parts";
import type { Polled } from "./poll";
import { Badge, pointsOf, staleTone, toneOf, worstFirst } from "./state";
import type { Events } from "./stream";
import { verbsOfFlow } from "./deeds";
import { Verbs } from "./verbs";

export interface Known {
  flows: Polled<Answer<FlowBody[]>>;
  clusters: Polled<Answer<ClusterBody[]>>;
  /** Null: this user may not see them. */
  events: Events | null;
}

const LATEST_MOST = 8;
const KEEPS_UP_S = 10;

export function FlowsView({ address, known }: { address: Address; known: Known }) {
  const { flows, clusters, events } = known;
  const body = flows.value?.body;
  const isStale = useStale(flows, flows.value?.ageS ?? null);
  const staleSince = isStale ? (flows.value?.lookedAtMs ?? flows.atMs) : null;
  return (
    <>
      <h1 class="hidden">Flows</h1>
      <Freshness of={flows} what="the flows" lookAgeS={flows.value?.ageS ?? null} />
      {!body && !flows.error && <Waiting what="the flows" />}
      {body && !body.length && <p class="note">The file of this worker enables no flow.</p>}
      {body && (
        <div class="first">
          <section aria-label="Flows" class="flows">
            <Ranges address={address} />
            {worstFirst(body).map((flow) => (
              <FlowCard key={flow.flow} flow={flow} range={address.range} lookedAt={flows.atMs ?? 0} staleSince={staleSince} />
            ))}
          </section>
          <aside>
            <section aria-label="Map" class="panel">
              <ClusterMap flows={body} isStale={isStale} clusters={clusters.value?.body ?? null} />
              {clusters.value?.body.map(
                (one) =>
                  !one.is_reachable && (
                    <p key={one.cluster} class="note bad">
                      {one.why || `${one.cluster} does not answer.`}
                    </p>
                  ),
              )}
              {clusters.error && clusters.error.status !== 403 && (
                <p class="note warn">It is not known whether the clusters answer. {clusters.error.message}</p>
              )}
            </section>
            {events && (
              <section aria-labelledby="latest" class="panel">
                <h2 id="latest">
                  <Link to={at({ view: "events" })}>Events</Link>
                </h2>
                {events.error && !events.events.length ? (
                  <Failure error={events.error} what="events" />
                ) : (
                  <EventLines
                    events={folded(events.events.filter((one) => !isOfSession(one))).slice(0, LATEST_MOST)}
                    isOpen={events.isOpen}
                  />
                )}
                <NoneNew events={events} />
                <Unread events={events} />
              </section>
            )}
          </aside>
        </div>
      )}
    </>
  );
}

function FlowCard(props: { flow: FlowBody; range: string; lookedAt: number; staleSince: number | null }) {
  const { flow, range, lookedAt, staleSince } = props;
  const [word, tone] = staleSince !== null ? staleTone(toneOf(flow)) : toneOf(flow);
  return (
    <article class={`panel flow ${tone}`} aria-label={`Flow ${flow.flow}`}>
      <h2>
        <Link to={at({ view: "topics", flow: flow.flow })}>{flow.flow.replace("->", " → ")}</Link>{" "}
        <Badge tone={tone}>{word}</Badge>
      </h2>
      <Verdict flow={flow} staleSince={staleSince} />
      {flow.verdict && flow.why && <p class="note bad pre">{flow.why}</p>}
      <PartlyKnown flow={flow} />
      {flow.bottleneck && flow.bottleneck.cause !== "nothing-waits" && (
        <p class="note">
          What limits it: {flow.bottleneck.text}
          {flow.bottleneck.remedy && `. ${flow.bottleneck.remedy}`}
        </p>
      )}
      {flow.verdict && <Figures flow={flow} />}
      {flow.verdict && (
        <p>
          <Link to={at({ view: "recovery", flow: flow.flow })}>Recovery: cutover, failover, return, fence</Link>
        </p>
      )}
      {flow.verdict && <Verbs verbs={verbsOfFlow(flow)} of={flow.flow} />}
      {flow.verdict && <FlowChart flow={flow.flow} range={range} lookedAt={lookedAt} />}
    </article>
  );
}

const toTopic = (flow: FlowBody, topic: string) => at({ view: "topics", flow: flow.flow, topic });
const toGroup = (flow: FlowBody, group: string) => at({ view: "groups", flow: flow.flow, group });

/** Whether it is safe to fail over, point by point, and what would be lost. */
function Verdict({ flow, staleSince }: { flow: FlowBody; staleSince: number | null }) {
  const [first = "", ...points] = pointsOf(flow);
  const { verdict, loss } = flow;
  // the loss and the figures say how far it is behind, and what of it
  const others = points.filter((point) => !loss || !/^(the rest is )?.* behind( \(all was copied up to [^)]*\))?$/.test(point));
  const topics = new Map((verdict?.left_out ?? []).map((one) => [one.topic, toTopic(flow, one.topic)]));
  if (verdict?.oldest) topics.set(verdict.oldest, toTopic(flow, verdict.oldest.replace(/-\d+$/, "")));
  const byGroup = new Map((flow.consumer_groups?.not_ready ?? []).map(({ group }) => [group, toGroup(flow, group)]));
  const of = (point: string) => (/^\d+ of \d+ groups? not ready/.test(point) ? byGroup : topics);
  return (
    <>
      <p class="sentence">
        {staleSince !== null && `As of ${time(staleSince)}: `}
        <Linked text={first} names={topics} />
      </p>
      {flow.loss && (
        <p class="loss">
          <Linked text={flow.loss} names={topics} />
        </p>
      )}
      {others.length > 0 && (
        <ul class="points">
          {others.map((point) => (
            <li key={point}>
              <Linked text={point} names={of(point)} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Figures({ flow }: { flow: FlowBody }) {
  const topics = (show: string) => at({ view: "topics", flow: flow.flow, show });
  const { verdict, consumer_groups: groups } = flow;
  return (
    <ul class="figures">
      {verdict?.oldest && (
        <li>
          Furthest behind{verdict.left_out.length > 0 && " of what is copied"}: <Link to={toTopic(flow, verdict.oldest.replace(/-\d+$/, ""))}>{verdict.oldest}</Link>,{" "}
          {verdict.behind_s === null ? "not known by how much" : seconds(verdict.behind_s)}
          {verdict.behind_s !== null && verdict.behind_s > KEEPS_UP_S && `: all was copied up to ${time(verdict.safe_at_ms)}`}
        </li>
      )}
      {groups && !!groups.reads_again_at_most && (
        <li>
          Reads the most again: group <Link to={toGroup(flow, groups.reads_most_again)}>{groups.reads_most_again}</Link>, up to{" "}
          {plural(groups.reads_again_at_most, "record")}
        </li>
      )}
      <li>
        <b>{atLeast(flow.lag_records, flow.lag_is_partial)}</b> records behind
        {flow.lag_bytes ? `, about ${bytes(flow.lag_bytes)}` : ""}
        {flow.lag_as_of_ms !== null && <span class="warn"> as of {time(flow.lag_as_of_ms)}</span>}
      </li>
      <li>
        <Link to={topics("")}>
          <b>{plural(flow.topics_copied, "topic")}</b>
        </Link>{" "}
        copied
      </li>
      {flow.topics_waiting > 0 && (
        <li class="bad">
          <Link to={topics("problems")}>
            <b>{plural(flow.topics_waiting, "topic")}</b>
          </Link>{" "}
          {flow.topics_waiting === 1 ? "waits" : "wait"} for you
        </li>
      )}
      {flow.open_gaps > 0 && (
        <li class="bad">
          <Link to={at({ view: "gaps", flow: flow.flow })}>
            <b>{plural(flow.open_gaps, "gap")}</b>
          </Link>{" "}
          {flow.open_gaps === 1 ? "waits" : "wait"} for you
        </li>
      )}
      {flow.unowned > 0 && (
        <li class="bad">
          <b>{plural(flow.unowned, "task")}</b> without a worker
        </li>
      )}
      <li>
        <Link to={at({ view: "workers" })}>{plural(flow.workers, "worker")}</Link>
      </li>
      {flow.guarantee && (
        <li {...(flow.guarantee.level === "exactly-once" ? {} : { class: "warn" })}>
          {flow.guarantee.level}
          {flow.guarantee.reasons.length > 0 && `: ${flow.guarantee.reasons.join("; ")}`}
        </li>
      )}
    </ul>
  );
}
