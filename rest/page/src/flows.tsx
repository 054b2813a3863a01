// The first screen: a sentence for each flow, what it was like in the last hour, and where it leads.

import { useMemo } from "preact/hooks";
import { type Answer, type ClusterBody, type FlowBody, flowPath, get, type HistoryBody } from "./api";
import { type Address, at, RANGES } from "./address";
import { Chart, type Drawn } from "./chart";
import { EventLines, NoneNew, Unread } from "./events";
import { atLeast, bytes, plural, time } from "./format";
import { ClusterMap } from "./map";
import { Failure, Freshness, Link, PartlyKnown, useStale, Waiting } from "./parts";
import { type Polled, usePolled } from "./poll";
import { grid } from "./seen";
import { Badge, sentenceOf, staleTone, toneOf } from "./state";
import type { Events } from "./stream";
import { verbsOfFlow } from "./deeds";
import { Verbs } from "./verbs";

export interface Known {
  flows: Polled<Answer<FlowBody[]>>;
  clusters: Polled<Answer<ClusterBody[]>>;
  /** Null: this user may not see them. */
  events: Events | null;
}

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
            {sorted(body).map((flow) => (
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
                  <EventLines events={events.events.slice(0, 8)} isOpen={events.isOpen} />
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

const Ranges = ({ address }: { address: Address }) => (
  <nav class="ranges" aria-label="Time of the charts">
    {RANGES.map((range) => (
      <Link key={range} to={{ ...address, range }} {...(range === address.range ? { class: "on" } : {})}>
        {range}
      </Link>
    ))}
  </nav>
);

const ORDER = ["bad", "warn", "off", "good"];
/** The worst first. */
const sorted = (flows: FlowBody[]) =>
  [...flows].sort((a, b) => ORDER.indexOf(toneOf(a)[1]) - ORDER.indexOf(toneOf(b)[1]) || a.flow.localeCompare(b.flow));

function FlowCard(props: { flow: FlowBody; range: string; lookedAt: number; staleSince: number | null }) {
  const { flow, range, lookedAt, staleSince } = props;
  const [word, tone] = staleSince !== null ? staleTone(toneOf(flow)) : toneOf(flow);
  return (
    <article class={`panel flow ${tone}`} aria-label={`Flow ${flow.flow}`}>
      <h2>
        <Link to={at({ view: "topics", flow: flow.flow })}>{flow.flow.replace("->", " → ")}</Link>{" "}
        <Badge tone={tone}>{word}</Badge>
      </h2>
      <p class="sentence">
        {staleSince !== null && `As of ${time(staleSince)}: `}
        {sentenceOf(flow)}
      </p>
      {flow.verdict && flow.why && <p class="note bad pre">{flow.why}</p>}
      <PartlyKnown flow={flow} />
      {flow.bottleneck && flow.bottleneck.cause !== "nothing-waits" && (
        <p class="note">
          What limits it: {flow.bottleneck.text}
          {flow.bottleneck.remedy && `. ${flow.bottleneck.remedy}`}
        </p>
      )}
      {flow.verdict && <Figures flow={flow} />}
      {flow.verdict && <Verbs verbs={verbsOfFlow(flow)} of={flow.flow} />}
      {flow.verdict && <FlowChart flow={flow.flow} range={range} lookedAt={lookedAt} />}
    </article>
  );
}

function Figures({ flow }: { flow: FlowBody }) {
  const topics = (show: string) => at({ view: "topics", flow: flow.flow, show });
  return (
    <ul class="figures">
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

function FlowChart({ flow, range, lookedAt }: { flow: string; range: string; lookedAt: number }) {
  const path = `${flowPath(flow)}/history?from=${range}`;
  const history = usePolled(path, 10_000, (signal) => get<HistoryBody>(path, signal));
  const drawn = useMemo((): Drawn => {
    const kept = history.value?.body;
    if (kept) {
      const { safe_age_s: behind = [], lag_records: records = [], topics_not_copied: leftOut = [] } = kept.series;
      return { timesMs: kept.times_ms, seconds: behind, records, leftOut };
    }
    return { ...grid(`flow ${flow}`, lookedAt), leftOut: [] };
  }, [history.value, history.value ? 0 : lookedAt]);
  const note = history.value ? writtenNote(history.value.body) : seenNote(drawn, range);
  const silence = history.value && history.error ? `As of ${time(history.atMs)}. ${history.error.message} ` : "";
  return <Chart drawn={drawn} flow={flow} note={silence + note} />;
}

const WRITTEN_LATE_MS = 90_000;

/** Why the newest stretch of a chart is not known. */
function writtenNote({ problem, newest_ms: newest, to_ms: to }: HistoryBody): string {
  if (problem) return problem;
  if (newest === null) return "No worker has written a history of it yet.";
  return to - newest > WRITTEN_LATE_MS ? `No worker has written anything since ${time(newest)}.` : "";
}

function seenNote(drawn: Drawn, range: string): string {
  const first = drawn.seconds.findIndex((one, index) => one !== null || drawn.records[index] !== null);
  const since = drawn.timesMs[first];
  const hour = range === "1h" ? "" : " This chart shows one hour.";
  return since === undefined ? "" : `What this page has seen since ${time(since)}; the worker tells no history.${hour}`;
}
