// Records that are not in the copy: gaps, quarantine, and what backfills are still to bring.

import { type Answer, type BackfillBody, type FlowBody, flowPath, type GapBody, getAll, type QuarantinedBody } from "./api";
import { type Address, go } from "./address";
import { FlowChoice, flowOf } from "./choice";
import { count, time } from "./format";
import { Freshness, Waiting } from "./parts";
import { type Polled, usePolled } from "./poll";
import { Rows } from "./rows";

export function GapsView({ address, flows }: { address: Address; flows: Polled<Answer<FlowBody[]>> }) {
  const known = flows.value?.body ?? [];
  const flow = flowOf(address, known);
  return (
    <>
      <h1>
        <FlowChoice address={address} flow={flow} flows={known} /> records that are not in the copy
      </h1>
      {flow && (
        <>
          <Gaps address={address} flow={flow} />
          <Quarantine flow={flow} />
          <Backfills flow={flow} isPartial={!!known.find((one) => one.flow === flow)?.unread.length} />
        </>
      )}
    </>
  );
}

function Gaps({ address, flow }: { address: Address; flow: string }) {
  const isAll = address.show === "all";
  const path = `${flowPath(flow)}/gaps?all=${isAll}`;
  const gaps = usePolled(path, 5000, (signal) => getAll<GapBody>(path, signal));
  const rows = gaps.value?.body ?? [];
  return (
    <section aria-labelledby="gaps">
      <h2 id="gaps">Gaps</h2>
      <div class="filters">
        <label>
          <input
            type="checkbox"
            checked={isAll}
            onChange={(event) => go({ ...address, flow, show: event.currentTarget.checked ? "all" : "" }, { replace: true })}
          />{" "}
          also those that need no operator
        </label>
        {rows.some((one) => one.open) && (
          <span>
            To let a partition go on behind its gap: <code>mm2py gaps FILE accept '{flow}:TOPIC:PARTITION'</code>
          </span>
        )}
      </div>
      <Freshness of={gaps} what="gaps" lookAgeS={gaps.value?.ageS ?? null} />
      {!gaps.value && !gaps.error && <Waiting what="gaps" />}
      {gaps.value && (
        <Rows
          label={`Gaps of ${flow}`}
          rows={rows}
          keyOf={(one) => `${one.topic} ${one.partition} ${one.at_ms} ${one.kind} ${one.first_offset}`}
          sort={address.sort}
          onSort={(sort) => go({ ...address, flow, sort }, { replace: true })}
          empty={isAll ? "No gap is kept." : "No gap waits for you."}
          columns={[
            { name: "at", title: "Found", by: (one) => one.at_ms, cell: (one) => time(one.at_ms) },
            { name: "topic", title: "Partition", by: (one) => one.topic, cell: (one) => `${one.topic}-${one.partition}` },
            { name: "kind", title: "Kind", by: (one) => one.kind, cell: (one) => <span class={one.open ? "bad" : ""}>{one.kind}</span> },
            { name: "offsets", title: "Offsets", isWide: true, cell: (one) => `${count(one.first_offset)} to ${count(one.last_offset)}` },
            { name: "done", title: "Done", by: (one) => one.done, cell: (one) => (one.open ? "waits for you" : one.done) },
            { name: "text", title: "What happened", isWide: true, cell: (one) => <span title={one.text}>{one.text}</span> },
          ]}
        />
      )}
    </section>
  );
}

function Quarantine({ flow }: { flow: string }) {
  const path = `${flowPath(flow)}/quarantine`;
  const found = usePolled(path, 30_000, (signal) => getAll<QuarantinedBody>(path, signal));
  return (
    <section aria-labelledby="quarantine">
      <h2 id="quarantine">Quarantine</h2>
      <Freshness of={found} what="the quarantine" />
      {!found.value && !found.error && <Waiting what="the quarantine" />}
      {found.value && (
        <Rows
          label={`Records of ${flow} in quarantine`}
          rows={found.value.body}
          keyOf={(one) => `${one.topic} ${one.partition} ${one.offset}`}
          sort=""
          onSort={() => {}}
          empty="No record is in quarantine."
          columns={[
            { name: "at", title: "Since", cell: (one) => time(one.quarantined_at_ms) },
            { name: "record", title: "Record", cell: (one) => `${one.topic}-${one.partition} at ${count(one.offset)}` },
            { name: "why", title: "The target said", cell: (one) => <span title={one.error_text}>{one.error_text}</span> },
            { name: "replayed", title: "Taken out", isWide: true, cell: (one) => (one.replayed_at_ms === null ? "no" : time(one.replayed_at_ms)) },
          ]}
        />
      )}
    </section>
  );
}

const nameOf = (flow: BackfillBody["flow"]) => (typeof flow === "string" ? flow : `${flow.source}->${flow.target}`);

function Backfills({ flow, isPartial }: { flow: string; isPartial: boolean }) {
  const found = usePolled("backfills", 5000, (signal) => getAll<BackfillBody>("/v1/backfills", signal));
  const rows = found.value?.body.filter((one) => nameOf(one.flow) === flow) ?? [];
  return (
    <section aria-labelledby="backfills">
      <h2 id="backfills">Backfills of the last week</h2>
      <Freshness of={found} what="backfills" lookAgeS={found.value?.ageS ?? null} />
      {!found.value && !found.error && <Waiting what="backfills" />}
      {found.value && (
        <Rows
          label={`Backfills of ${flow}`}
          rows={rows}
          keyOf={(one) => one.id}
          sort=""
          onSort={() => {}}
          empty={isPartial ? "None is known, but not everything could be read of this flow." : "There was none."}
          columns={[
            { name: "id", title: "Id", cell: (one) => <code>{one.id}</code> },
            { name: "state", title: "State", cell: (one) => <span class={one.is_dead ? "bad" : ""}>{one.is_dead ? "dead" : one.state}</span> },
            { name: "offsets", title: "Copied", cell: (one) => `${count(one.offsets_copied)} of ${count(one.offsets)} offsets` },
            { name: "topics", title: "Topics", isWide: true, cell: (one) => one.topics.join(", ") },
            { name: "text", title: "How it stands", isWide: true, cell: (one) => <span title={one.text}>{one.text}</span> },
          ]}
        />
      )}
    </section>
  );
}
