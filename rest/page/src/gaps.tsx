// Records that are not in the copy: gaps, quarantine, and what backfills are still to bring.

import {
  type Answer,
  type BackfillBody,
  type FlowBody,
  flowPath,
  type GapBody,
  get,
  getAll,
  type QuarantinedBody,
  type SettingsBody,
} from "./api";
import { type Address, go } from "./address";
import { FlowChoice, flowOf } from "./choice";
import { accepting, replaying } from "./deeds";
import { count, plural, seconds, time } from "./format";
import { Freshness, MayLack, NONE_KNOWN, PartlyKnown, Waiting } from "./parts";
import { type Polled, usePolled } from "./poll";
import { type Column, Rows } from "./rows";
import { useMay, Verbs } from "./verbs";

const TOPICS_SHOWN_MOST = 8;

interface Shown {
  address: Address;
  flow: string;
}

/** Whether a name fits the filter that is in the address. */
const fits = (address: Address, ...names: string[]) => names.some((one) => one.toLowerCase().includes(address.q.toLowerCase()));

export function GapsView({ address, flows }: { address: Address; flows: Polled<Answer<FlowBody[]>> }) {
  const known = flows.value?.body ?? [];
  const flow = flowOf(address, known);
  const body = known.find((one) => one.flow === flow);
  const set = (part: Partial<Address>) => go({ ...address, flow, ...part }, { replace: true });
  return (
    <>
      <h1>
        <FlowChoice address={address} flow={flow} flows={known} /> records that are not in the copy
      </h1>
      {flow && (
        <>
          <div class="filters">
            <label>
              Topic <input type="search" value={address.q} onInput={(event) => set({ q: event.currentTarget.value })} />
            </label>
            <label>
              <input
                type="checkbox"
                checked={address.show === "all"}
                onChange={(event) => set({ show: event.currentTarget.checked ? "all" : "" })}
              />{" "}
              also what needs nobody: gaps that were passed, records that were replayed
            </label>
          </div>
          <PartlyKnown flow={body} />
          <Gaps address={address} flow={flow} />
          <Quarantine address={address} flow={flow} />
          <Backfills address={address} flow={flow} isPartial={!!body?.unread.length} />
        </>
      )}
    </>
  );
}

function Gaps({ address, flow }: Shown) {
  const isAll = address.show === "all";
  const path = `${flowPath(flow)}/gaps?all=${isAll}`;
  const gaps = usePolled(path, 5000, (signal) => getAll<GapBody>(path, signal));
  const may = useMay("operator");
  const rows = gaps.value?.body.filter((one) => fits(address, one.topic)) ?? [];
  // of a partition the latest of its open gaps is accepted, and all of them with it
  const latest = new Map<string, GapBody>();
  for (const one of rows) {
    const name = `${one.topic} ${one.partition}`;
    if (one.open && one.at_ms >= (latest.get(name)?.at_ms ?? 0)) latest.set(name, one);
  }
  const toAccept = new Set(latest.values());
  const columns: Column<GapBody>[] = [
    { name: "at", title: "Found", isWide: true, by: (one) => one.at_ms, cell: (one) => time(one.at_ms) },
    { name: "topic", title: "Partition", by: (one) => one.topic, cell: (one) => `${one.topic}-${one.partition}` },
    { name: "kind", title: "Kind", by: (one) => one.kind, cell: (one) => <span class={one.open ? "bad" : ""}>{one.kind}</span> },
    { name: "offsets", title: "Offsets", isWide: true, cell: (one) => `${count(one.first_offset)} to ${count(one.last_offset)}` },
    { name: "done", title: "Done", by: (one) => one.done, cell: (one) => (one.open ? "waits for you" : one.done) },
    { name: "text", title: "What happened", isWide: true, cell: (one) => <span title={one.text}>{one.text}</span> },
  ];
  if (may) {
    columns.splice(2, 0, {
      name: "verbs",
      title: "",
      isNarrow: true,
      cell: (one) =>
        toAccept.has(one) && <Verbs verbs={[accepting(flow, one)]} of={`the gap of ${one.topic}-${one.partition} of ${flow}`} inRow />,
    });
  }
  return (
    <section aria-labelledby="gaps">
      <h2 id="gaps">Gaps</h2>
      {toAccept.size > 1 && (
        <p class="muted">
          To accept all of a topic at once: <code>mm2py gaps FILE accept '{flow}:TOPIC'</code>
        </p>
      )}
      <Freshness of={gaps} what="gaps" lookAgeS={gaps.value?.ageS ?? null} />
      <MayLack unread={gaps.value?.unread} what="gaps" />
      {!gaps.value && !gaps.error && <Waiting what="gaps" />}
      {gaps.value && (
        <Rows
          label={`Gaps of ${flow}`}
          rows={rows}
          keyOf={(one) => `${one.topic} ${one.partition} ${one.at_ms} ${one.kind} ${one.position}`}
          sort={address.sort}
          onSort={(sort) => go({ ...address, flow, sort }, { replace: true })}
          empty={gaps.value.unread.length ? NONE_KNOWN : address.q ? "No gap fits." : isAll ? "No gap is kept." : "No gap waits for you."}
          columns={columns}
        />
      )}
    </section>
  );
}

function Quarantine({ address, flow }: Shown) {
  const path = `${flowPath(flow)}/quarantine`;
  const found = usePolled(path, 5000, (signal) => getAll<QuarantinedBody>(path, signal));
  const may = useMay("operator");
  const all = found.value?.body.filter((one) => fits(address, one.topic)) ?? [];
  const waiting = all.filter((one) => one.replayed_at_ms === null);
  const rows = address.show === "all" ? all : waiting;
  const config = `${flowPath(flow)}/config`;
  const settings = usePolled(may && waiting.length ? config : null, 30_000, (signal) => get<SettingsBody>(config, signal));
  const once = settings.value?.body.settings.find((one) => one.name === "exactly.once.source.support");
  const stops = once?.value === "enabled";
  const topics = [...new Set(waiting.map((one) => one.topic))].sort();
  const columns: Column<QuarantinedBody>[] = [
    { name: "at", title: "Since", isWide: true, cell: (one) => time(one.quarantined_at_ms) },
    { name: "record", title: "Record", cell: (one) => `${one.topic}-${one.partition} at ${count(one.offset)}` },
    { name: "why", title: "The target said", cell: (one) => <span title={one.error_text}>{one.error_text}</span> },
    { name: "replayed", title: "Taken out", isWide: true, cell: (one) => (one.replayed_at_ms === null ? "no" : time(one.replayed_at_ms)) },
  ];
  const mayReplay = may && settings.value;
  if (mayReplay) {
    columns.splice(2, 0, {
      name: "verbs",
      title: "",
      isNarrow: true,
      cell: (one) =>
        one.replayed_at_ms === null && (
          <Verbs verbs={[replaying(flow, [one], one, stops)]} of={`${one.topic}-${one.partition} at ${one.offset} of ${flow}`} inRow />
        ),
    });
  }
  return (
    <section aria-labelledby="quarantine">
      <h2 id="quarantine">Quarantine</h2>
      <Freshness of={found} what="the quarantine" />
      {!found.value && !found.error && <Waiting what="the quarantine" />}
      {may && settings.error && (
        <p class="note warn">Nothing can be replayed here, as it is not known whether partitions stop for it. {settings.error.message}</p>
      )}
      {mayReplay &&
        topics.slice(0, TOPICS_SHOWN_MOST).map((topic) => {
          const those = waiting.filter((one) => one.topic === topic);
          return (
            <div key={topic} class="filters">
              {plural(those.length, "record")} of {topic} {those.length === 1 ? "waits" : "wait"}
              <Verbs verbs={[replaying(flow, those, null, stops)]} of={`${plural(those.length, "record")} of ${topic} of ${flow}`} inRow />
            </div>
          );
        })}
      {mayReplay && topics.length > TOPICS_SHOWN_MOST && <p class="muted">Filter by topic to replay the others of {topics.length} topics.</p>}
      {found.value && (
        <Rows
          label={`Records of ${flow} in quarantine`}
          rows={rows}
          keyOf={(one) => `${one.topic} ${one.partition} ${one.offset} ${one.topic_id}`}
          sort=""
          onSort={() => {}}
          empty={address.q ? "No record in quarantine fits." : all.length ? "All records of the quarantine were taken out." : "No record is in quarantine."}
          columns={columns}
        />
      )}
    </section>
  );
}

const nameOf = (flow: BackfillBody["flow"]) => (typeof flow === "string" ? flow : `${flow.source}->${flow.target}`);

function Backfills({ address, flow, isPartial }: Shown & { isPartial: boolean }) {
  const found = usePolled("backfills", 5000, (signal) => getAll<BackfillBody>("/v1/backfills", signal));
  const rows = found.value?.body.filter((one) => nameOf(one.flow) === flow && fits(address, ...one.topics)) ?? [];
  const columns: Column<BackfillBody>[] = [
    { name: "id", title: "Id", cell: (one) => <code>{one.id}</code> },
    { name: "state", title: "State", cell: (one) => <span class={one.is_dead ? "bad" : ""}>{one.is_dead ? "dead" : one.state}</span> },
    { name: "copied", title: "Copied", cell: (one) => <Progress of={one} /> },
    { name: "begun", title: "Began", isWide: true, cell: (one) => time(one.begun_at_ms) },
    {
      name: "driver",
      title: "Driver",
      isWide: true,
      cell: (one) => `${one.by}${one.is_holding ? `, seen ${seconds(one.last_seen_ms_ago / 1000)} ago` : ""}${one.resumed ? `, resumed ${plural(one.resumed, "time")}` : ""}`,
    },
    {
      name: "topics",
      title: "Topics",
      isWide: true,
      cell: (one) => <span title={one.topics.join(", ")}>{`${one.topics.join(", ")} (${plural(one.partitions, "partition")})`}</span>,
    },
    {
      name: "filter",
      title: "Only",
      isWide: true,
      cell: (one) => {
        const filter = [one.where && `where ${one.where}`, one.select && `select ${one.select}`].filter(Boolean).join("; ");
        return <span title={filter}>{filter}</span>;
      },
    },
    { name: "text", title: "How it stands", isWide: true, cell: (one) => <span title={one.text}>{one.is_holding ? "see above" : one.text}</span> },
  ];
  return (
    <section aria-labelledby="backfills">
      <h2 id="backfills">Backfills of the last week</h2>
      <Freshness of={found} what="backfills" lookAgeS={found.value?.ageS ?? null} />
      <MayLack unread={found.value?.unread} what="backfills" />
      {!found.value && !found.error && <Waiting what="backfills" />}
      {rows.map(
        (one) =>
          one.is_holding && (
            <p key={one.id} class={`note ${one.is_dead ? "bad" : "warn"}`}>
              <code>{one.id}</code>: {one.text}
            </p>
          ),
      )}
      {found.value && (
        <Rows
          label={`Backfills of ${flow}`}
          rows={rows}
          keyOf={(one) => one.id}
          sort=""
          onSort={() => {}}
          empty={isPartial || found.value.unread.length ? NONE_KNOWN : address.q ? "No backfill fits." : "There was none."}
          columns={columns}
        />
      )}
    </section>
  );
}

function Progress({ of }: { of: BackfillBody }) {
  const share = of.offsets ? of.offsets_copied / of.offsets : 1;
  const text = `${count(of.offsets_copied)} of ${count(of.offsets)} offsets`;
  return (
    <>
      <progress value={share} aria-label={text} /> {Math.floor(share * 100)} %, {text}
    </>
  );
}
