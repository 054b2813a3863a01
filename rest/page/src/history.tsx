// The chart of a flow over time, out of its history, with what happened meanwhile.

import { useMemo } from "preact/hooks";
import { flowPath, get, type HistoryBody } from "./api";
import { type Address, RANGES } from "./address";
import { Chart, type Drawn } from "./chart";
import { time } from "./format";
import { Link } from "./parts";
import { usePolled } from "./poll";
import { grid } from "./seen";

export const Ranges = ({ address }: { address: Address }) => (
  <nav class="ranges" aria-label="Time of the charts">
    {RANGES.map((range) => (
      <Link key={range} to={{ ...address, range }} {...(range === address.range ? { class: "on" } : {})}>
        {range}
      </Link>
    ))}
  </nav>
);

export function FlowChart({ flow, range, lookedAt }: { flow: string; range: string; lookedAt: number }) {
  const path = `${flowPath(flow)}/history?from=${range}`;
  const history = usePolled(path, 10_000, (signal) => get<HistoryBody>(path, signal));
  const drawn = useMemo((): Drawn => {
    const kept = history.value?.body;
    if (kept) {
      const { safe_age_s: behind = [], lag_records: records = [], topics_not_copied: leftOut = [] } = kept.series;
      return { timesMs: kept.times_ms, seconds: behind, records, leftOut, events: kept.events };
    }
    return { ...grid(`flow ${flow}`, lookedAt), leftOut: [], events: [] };
  }, [history.value, history.value ? 0 : lookedAt]);
  const note = history.value ? writtenNote(history.value.body) : seenNote(drawn, range);
  const silence = history.value && history.error ? `As of ${time(history.atMs)}. ${history.error.message} ` : "";
  return <Chart drawn={drawn} flow={flow} range={range} note={silence + note} />;
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
