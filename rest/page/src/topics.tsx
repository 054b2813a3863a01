// The topics of a flow, and the partitions of a topic: what is not copied and why, who copies it, how far it is behind.

import { useEffect } from "preact/hooks";
import { type Answer, type FlowBody, flowPath, getAll, type Movement, type PartitionBody, type TopicBody, type WorkerBody } from "./api";
import { type Address, at, go, write } from "./address";
import { bytes, count, plural, seconds, time, UNKNOWN } from "./format";
import { FlowChart, Ranges } from "./history";
import { Freshness, Link, NONE_KNOWN, PartlyKnown, Spark, Waiting } from "./parts";
import { FlowChoice, flowOf } from "./choice";
import { type Polled, usePolled } from "./poll";
import { type Column, Rows } from "./rows";
import { forget, note, SPARK_POINTS, spark } from "./seen";
import { type Verb, verbsOfPartition, verbsOfTopic } from "./deeds";
import { useMay, Verbs } from "./verbs";

const SHOWS = [
  ["", "selected"],
  ["problems", "not copied"],
  ["behind", "behind"],
  ["all", "all of the source"],
] as const;

export function TopicsView({ address, flows }: { address: Address; flows: Polled<Answer<FlowBody[]>> }) {
  const known = flows.value?.body ?? [];
  const flow = flowOf(address, known);
  const path = flow ? `${flowPath(flow)}/topics` : null;
  const topics = usePolled(path, 2000, async (signal) => {
    const begunMs = Date.now();
    const found = await getAll<TopicBody>(path ?? "", signal);
    noteAll(found.body, (one) => `${flow} ${one.topic}`, begunMs);
    return found;
  });
  const workers = usePolled("names", 10_000, (signal) => getAll<WorkerBody>("/v1/workers", signal));
  const names = new Map(workers.value?.body.map((one) => [one.member.member, one.member.name]));
  const all = topics.value?.body ?? [];
  const one = all.find((each) => each.topic === address.topic);
  const body = known.find((each) => each.flow === flow);
  const isPartial = !!body?.unread.length;
  return (
    <>
      <h1>
        <FlowChoice address={address} flow={flow} flows={known} /> {address.topic || "topics"}
      </h1>
      {flow && <Freshness of={topics} what={`the topics of ${flow}`} lookAgeS={topics.value?.ageS ?? null} />}
      <PartlyKnown flow={body} />
      {flow && body?.verdict && !address.topic && (
        <section class="panel" aria-label={`How far ${flow} was behind`}>
          <Ranges address={address} />
          <FlowChart flow={flow} range={address.range} lookedAt={flows.atMs ?? 0} />
        </section>
      )}
      {flow && !topics.value && !topics.error && <Waiting what={`the topics of ${flow}`} />}
      {topics.value && !address.topic && <TopicList address={address} flow={flow} topics={all} names={names} isPartial={isPartial} />}
      {topics.value && address.topic && (
        <OneTopic key={address.topic} address={address} flow={flow} topic={one} name={address.topic} isPartial={isPartial} />
      )}
    </>
  );
}

interface OfALag {
  lag_records: number | null;
  lag_note: string;
  lag_as_of_ms: number | null;
}

/** Keep the lags of a list for its sparklines; `begunMs`: when the list was asked for. */
function noteAll<T extends OfALag & { lag_s: number | null }>(list: T[], nameOf: (one: T) => string, begunMs: number) {
  const atMs = Date.now();
  const everyMs = Math.max(2000, 4 * (atMs - begunMs));
  for (const one of list) {
    const records = one.lag_as_of_ms === null ? one.lag_records : null;
    note(nameOf(one), { atMs, records, seconds: one.lag_s }, everyMs, SPARK_POINTS);
  }
}

const Lately = ({ of }: { of: string }) => <Spark values={spark(of)} label="records behind, as this page has seen them" />;

const noteOf = (one: OfALag) => one.lag_note.replace("lag_as_of_ms", time(one.lag_as_of_ms));

/** That a lag is one of before: the source does not answer. */
const AsOf = ({ of }: { of: OfALag }) =>
  of.lag_records !== null && of.lag_as_of_ms !== null ? <span class="warn"> as of {time(of.lag_as_of_ms)}</span> : null;

const Lag = ({ of }: { of: OfALag }) => (
  <span title={noteOf(of)}>
    {count(of.lag_records)}
    <AsOf of={of} />
  </span>
);

/** How long the oldest record has waited. That none waited before the source fell silent does not say that none waits. */
const age = (of: OfALag & { lag_s: number | null }) =>
  of.lag_as_of_ms !== null && !of.lag_records ? UNKNOWN : seconds(of.lag_s);

/** How a lag moves now; null: it is one of before. */
const movementOf = (of: OfALag, movement: Movement | null | undefined) => (of.lag_as_of_ms === null ? movement : null);

const MODES =
  "How the last batch travelled: passed as bytes, repacked (small ones became one), or rebuilt, because it could not stay as it was.";

/** How a topic is copied: one mode, or how many partitions have each. */
function modes({ modes: found }: TopicBody): string {
  const names = Object.keys(found);
  if (names.length < 2) return names[0] ?? "";
  return Object.entries(found)
    .map(([mode, partitions]) => `${mode} ${count(partitions)}`)
    .join(", ");
}

/** Records wait, or may wait, and it does not keep up. */
const isBehind = (topic: TopicBody) => (topic.lag_records ?? 1) > 0 && movementOf(topic, topic.copy?.movement)?.trend !== "keeps-up";

const isLeftOut = (topic: TopicBody) => topic.copy === null && !topic.not_copied.length;

const trend = (movement: Movement | null | undefined): string => {
  if (!movement || movement.per_s === null) return "";
  if (movement.trend === "growing") return `growing by ${count(Math.round(movement.per_s))}/s`;
  if (movement.trend === "shrinking") {
    const until = movement.catch_up_s === null ? "" : `, done in ${seconds(movement.catch_up_s)}`;
    return `shrinking by ${count(Math.round(-movement.per_s))}/s${until}`;
  }
  return movement.trend.replace("-", " ");
};

const expiry = (movement: Movement | null | undefined): string => {
  if (movement?.expiry === "gone") return "the source has deleted records of it";
  if (movement?.expiry !== "at-this-rate") return "";
  return movement.expires_s === null ? "expires at this rate" : `expires in ${seconds(movement.expires_s, Math.floor)}`;
};

function Trend({ of }: { of: Movement | null | undefined }) {
  const soon = expiry(of);
  return (
    <>
      {trend(of)}
      {soon && <span class="bad"> {soon}</span>}
    </>
  );
}

interface OfTopics {
  address: Address;
  flow: string;
  /** Not everything could be read of the flow: what is not there may not be known. */
  isPartial: boolean;
}

function TopicList(props: OfTopics & { topics: TopicBody[]; names: Map<string, string> }) {
  const { address, flow, topics, names, isPartial } = props;
  const wanted = address.q.toLowerCase();
  const shown = topics.filter((one) => {
    if (wanted && !`${one.topic} ${one.remote_topic}`.toLowerCase().includes(wanted)) return false;
    if (address.show === "all") return true;
    if (isLeftOut(one)) return false;
    if (address.show === "problems") return !one.is_copied;
    return address.show !== "behind" || isBehind(one);
  });
  const set = (part: Partial<Address>) => go({ ...address, flow, ...part }, { replace: true });
  const columns: Column<TopicBody>[] = [
    {
      name: "topic",
      title: "Topic",
      by: (one) => one.topic,
      cell: (one) => <Link to={at({ view: "topics", flow, topic: one.topic })}>{one.topic}</Link>,
    },
    {
      name: "reason",
      title: "Not copied, because",
      by: (one) => (one.reason ? `0 ${one.reason}` : "1"),
      cell: (one) => one.reason && <Reason topic={one} />,
    },
    {
      name: "lag",
      title: "Records behind",
      isNumber: true,
      by: (one) => one.lag_records ?? -1,
      cell: (one) => <Lag of={one} />,
    },
    { name: "age", title: "Behind", isNumber: true, by: (one) => one.lag_s ?? -1, cell: age },
    {
      name: "bytes",
      title: "About",
      isNumber: true,
      isWide: true,
      by: (one) => one.lag_bytes ?? -1,
      cell: (one) => bytes(one.lag_bytes),
    },
    { name: "trend", title: "Moves", isWide: true, cell: (one) => <Trend of={movementOf(one, one.copy?.movement)} /> },
    {
      name: "spark",
      title: "Records, lately",
      isWide: true,
      cell: (one) => <Lately of={`${flow} ${one.topic}`} />,
    },
    {
      name: "partitions",
      title: "Partitions",
      isNumber: true,
      isWide: true,
      by: (one) => one.copy?.partitions ?? -1,
      cell: (one) => count(one.copy?.partitions),
    },
    { name: "mode", title: "Mode", isWide: true, by: (one) => modes(one), cell: (one) => <span title={MODES}>{modes(one)}</span> },
    {
      name: "owners",
      title: "Workers",
      isWide: true,
      cell: (one) => {
        const owners = Object.keys(one.copy?.owners ?? {}).map((id) => names.get(id) ?? id);
        return <span title={owners.join(", ")}>{owners.length > 2 ? plural(owners.length, "worker") : owners.join(", ")}</span>;
      },
    },
  ];
  return (
    <>
      <div class="filters">
        <nav aria-label="Which topics">
          {SHOWS.map(([show, title]) => (
            <a key={show} href={write({ ...address, flow, show })} {...(show === address.show ? { "aria-current": "page" as const } : {})}>
              {title}
            </a>
          ))}
        </nav>
        <label>
          Name <input type="search" value={address.q} onInput={(event) => set({ q: event.currentTarget.value })} />
        </label>
        <span class="muted">
          {count(shown.length)} of {plural(topics.length, "topic")}
        </span>
      </div>
      <Rows
        label={`Topics of ${flow}`}
        rows={shown}
        keyOf={(one) => one.topic}
        sort={address.sort || (address.show === "behind" ? "-lag" : "reason")}
        onSort={(sort) => set({ sort })}
        empty={noTopic(address, isPartial, !topics.every(isLeftOut))}
        columns={columns}
      />
    </>
  );
}

/** What an empty list of topics says: that all is well only if all is known, and no filter by name has left anything out. */
function noTopic(address: Address, isPartial: boolean, someSelected: boolean): string {
  if (address.q) return "No topic fits.";
  if (isPartial) return NONE_KNOWN;
  if (!someSelected && address.show !== "all") return "No topic is selected.";
  return address.show === "problems" ? "Every topic that is selected is copied." : "No topic fits.";
}

/** Whether the sentence begins with the word for the reason, which then need not be said twice. */
const saysWord = ({ reason, why }: TopicBody) => why.split(" ")[0]?.toLowerCase() === reason;

const Reason = ({ topic }: { topic: TopicBody }) => (
  <span class={isLeftOut(topic) ? "muted" : "bad"} title={`${topic.why} ${topic.remedy}`.trim()}>
    {topic.reason}
    {topic.why && (
      <span class="muted wide">
        {saysWord(topic) ? " " : ": "}
        <span class="why">{saysWord(topic) ? topic.why.slice(topic.reason?.length).trim() : topic.why}</span>
      </span>
    )}
    {topic.since_ms !== null && <span class="muted wide"> since {time(topic.since_ms)}</span>}
  </span>
);

function OneTopic(props: OfTopics & { topic: TopicBody | undefined; name: string }) {
  const { address, flow, topic, name, isPartial } = props;
  const back = (
    <p>
      <Link to={at({ view: "topics", flow })}>All topics of {flow}</Link>
    </p>
  );
  const verbs = topic ? verbsOfTopic(flow, topic) : [];
  if (!topic) {
    const none = isPartial
      ? `Nothing is known of a topic ${name}: not everything could be read of ${flow}.`
      : `The source shows no topic ${name}, and ${flow} selects none of this name.`;
    return <>{back}<p class="note bad">{none}</p></>;
  }
  return (
    <>
      {back}
      <p>
        {topic.is_copied ? (
          <>
            It is copied to <code>{topic.remote_topic}</code>.
          </>
        ) : (
          <>Its copy on the target is called <code>{topic.remote_topic}</code>.</>
        )}{" "}
        {topic.copy && (
          <>
            {plural(topic.copy.partitions, "partition")}, {count(topic.lag_records)} records behind
            <AsOf of={topic} />
            {topic.lag_bytes ? ` (about ${bytes(topic.lag_bytes)})` : ""}
            {topic.lag_s !== null && `, ${age(topic)}`}.{" "}
            <Trend of={movementOf(topic, topic.copy.movement)} />
          </>
        )}
      </p>
      {!isLeftOut(topic) && <Verbs verbs={verbs.filter((one) => one.name !== "resume")} of={`${name} of ${flow}`} />}
      {topic.lag_note && <p class="note warn">Only part is known: {noteOf(topic)}.</p>}
      {isLeftOut(topic) && (
        <p class="note">
          Not selected ({topic.reason}): {topic.why}
        </p>
      )}
      {topic.not_copied.map((one) => (
        <div key={`${one.reason} ${one.partitions}`} class="note bad">
          <b>{one.reason}</b>
          {one.partitions && ` (partitions ${one.partitions})`}
          {one.since_ms !== null && `, since ${time(one.since_ms)}`}: {one.why}
          {one.reason === "paused" && <Press verb={verbs.find(({ name: verb }) => verb === "resume")} of={`${name} of ${flow}`} />}
          {one.reason === "stopped" && (
            <p>
              What to do: look at <Link to={at({ view: "gaps", flow, q: name })}>its gaps</Link>, and accept them.
            </p>
          )}
          {one.remedy && <p>{one.reason === "paused" || one.reason === "stopped" ? "By a command" : "What to do"}: {one.remedy}</p>}
        </div>
      ))}
      {topic.copy && <PartitionList address={address} flow={flow} topic={topic.topic} isPartial={isPartial} />}
    </>
  );
}

/** What to do, with the button that does it; nothing for who may not. */
function Press({ verb, of }: { verb: Verb | undefined; of: string }) {
  if (!useMay("operator") || !verb) return null;
  return (
    <div class="press">
      What to do: press <Verbs verbs={[verb]} of={of} inRow />
    </div>
  );
}

interface Partitions {
  items: PartitionBody[];
  total: number;
  ageS: number | null;
}

/** What an empty list of partitions says. A topic that the source does not show has none, and is not copied. */
function noPartition({ items, total }: Partitions, isPartial: boolean): string {
  if (!total) return "No partition of it is known.";
  if (items.length < total) return "All that are here are copied; the others are coming.";
  return isPartial ? NONE_KNOWN : "Every partition is copied.";
}

function PartitionList({ address, flow, topic, isPartial }: OfTopics & { topic: string }) {
  const path = `${flowPath(flow)}/topics/${encodeURIComponent(topic)}/partitions`;
  const ofPartitions = `${flow} ${topic}/`;
  useEffect(() => () => forget(ofPartitions), [ofPartitions]);
  const partitions = usePolled<Partitions>(path, 2000, async (signal, part) => {
    const begunMs = Date.now();
    const found = await getAll<PartitionBody>(path, signal, (items, total) => part({ items, total, ageS: null }));
    noteAll(found.body, (one) => ofPartitions + one.partition, begunMs);
    return { items: found.body, total: found.body.length, ageS: found.ageS ?? null };
  });
  const value = partitions.value;
  const only = address.show === "problems";
  const shown = value?.items.filter((one) => !only || one.not_copied.length || one.open_gaps.length) ?? [];
  const may = useMay("operator");
  const columns: Column<PartitionBody>[] = [
    { name: "partition", title: "Partition", isNumber: true, by: (one) => one.partition, cell: (one) => one.partition },
    {
      name: "reason",
      title: "Not copied, because",
      by: (one) => (one.not_copied[0] ? `0 ${one.not_copied[0].reason}` : one.open_gaps.length ? "0 gap" : "1"),
      cell: (one) => (
        <>
          {one.not_copied.map((why) => (
            <span key={why.reason} class="bad" title={`${why.why} ${why.remedy}`.trim()}>
              {why.reason}{" "}
            </span>
          ))}
          {one.open_gaps.map((gap) => (
            <span key={gap.first_offset} class="bad" title={gap.text}>
              gap {count(gap.first_offset)}–{count(gap.last_offset)}{" "}
            </span>
          ))}
        </>
      ),
    },
    {
      name: "owner",
      title: "Worker",
      by: (one) => one.owner_name,
      cell: (one) =>
        one.owner_name || <span class="bad">none</span>,
    },
    {
      name: "lag",
      title: "Records behind",
      isNumber: true,
      by: (one) => one.lag_records ?? -1,
      cell: (one) => <Lag of={one} />,
    },
    { name: "age", title: "Behind", isNumber: true, by: (one) => one.lag_s ?? -1, cell: age },
    { name: "trend", title: "Moves", isWide: true, cell: (one) => <Trend of={movementOf(one, one.movement)} /> },
    { name: "spark", title: "Records, lately", isWide: true, cell: (one) => <Lately of={ofPartitions + one.partition} /> },
    {
      name: "mode",
      title: "Mode",
      isWide: true,
      by: (one) => one.mode ?? "",
      cell: (one) => <span title={MODES}>{one.mode ?? UNKNOWN}</span>,
    },
    { name: "position", title: "Next to copy", isNumber: true, isWide: true, cell: (one) => count(one.position) },
    { name: "end", title: "Source ends", isNumber: true, isWide: true, cell: (one) => count(one.end) },
    { name: "target", title: "Next in the copy", isNumber: true, isWide: true, cell: (one) => count(one.target_position) },
    { name: "start", title: "Source begins", isNumber: true, isWide: true, cell: (one) => count(one.start) },
  ];
  if (may) {
    columns.splice(1, 0, {
      name: "verbs",
      title: "",
      isNarrow: true,
      cell: (one) => <Verbs verbs={verbsOfPartition(flow, topic, one)} of={`${topic}/${one.partition} of ${flow}`} inRow />,
    });
  }
  return (
    <>
      <Freshness of={partitions} what={`the partitions of ${topic}`} lookAgeS={value?.ageS ?? null} />
      {!value && !partitions.error && <Waiting what={`the partitions of ${topic}`} />}
      {value && (
        <>
          <div class="filters">
            <nav aria-label="Which partitions">
              <a href={write({ ...address, show: "" })} {...(only ? {} : { "aria-current": "page" as const })}>
                all
              </a>
              <a href={write({ ...address, show: "problems" })} {...(only ? { "aria-current": "page" as const } : {})}>
                not copied
              </a>
            </nav>
            <span class="muted">
              {value.items.length < value.total
                ? `${count(value.items.length)} of ${plural(value.total, "partition")} are here, the others are coming`
                : `${count(shown.length)} of ${plural(value.total, "partition")}`}
            </span>
          </div>
          <Rows
            label={`Partitions of ${topic}`}
            rows={shown}
            keyOf={(one) => one.partition}
            sort={address.sort}
            onSort={(sort) => go({ ...address, sort }, { replace: true })}
            empty={noPartition(value, isPartial)}
            columns={columns}
          />
        </>
      )}
    </>
  );
}

