// Consumer groups: where each would go on, on the target, and whether at the exact record.

import { type Answer, type FlowBody, flowPath, get, type GroupBody, type GroupPartition, type GroupsPage } from "./api";
import { type Address, at, go } from "./address";
import { FlowChoice, flowOf } from "./choice";
import { count, plural } from "./format";
import { Freshness, Link, useStale, Waiting } from "./parts";
import { type Polled, usePolled } from "./poll";
import { type Column, Rows } from "./rows";
import { Badge, staleTone, type Tone } from "./state";

interface Groups {
  groups: GroupBody[];
  unread: string;
}

export async function readGroups(path: string, signal: AbortSignal): Promise<Groups> {
  const groups: GroupBody[] = [];
  let unread = "";
  let after: string | null = null;
  do {
    const cursor: string = after === null ? "" : `&after=${encodeURIComponent(after)}`;
    const { body }: Answer<GroupsPage> = await get<GroupsPage>(`${path}?limit=1000${cursor}`, signal);
    groups.push(...body.groups);
    unread ||= body.unread;
    after = body.next;
  } while (after !== null);
  return { groups, unread };
}

export function GroupsView({ address, flows }: { address: Address; flows: Polled<Answer<FlowBody[]>> }) {
  const known = flows.value?.body ?? [];
  const flow = flowOf(address, known);
  const path = flow ? `${flowPath(flow)}/groups` : null;
  const groups = usePolled(path, 10_000, (signal) => readGroups(path ?? "", signal));
  const isStale = useStale(groups);
  const all = groups.value?.groups ?? [];
  const isAlone = !!groups.value?.unread;
  const one = all.find((each) => each.group === address.group);
  const uncopied = new Set(known.find((each) => each.flow === flow)?.verdict?.left_out.map(({ topic }) => topic));
  return (
    <>
      <h1>
        <FlowChoice address={address} flow={flow} flows={known} /> {address.group || "consumer groups"}
      </h1>
      {flow && <Freshness of={groups} what={`the groups of ${flow}`} />}
      {flow && !groups.value && !groups.error && <Waiting what={`the groups of ${flow}`} />}
      {groups.value?.unread && <p class="note warn">Only the target tells of them, as of their last checkpoints: {groups.value.unread}</p>}
      {groups.value && !address.group && <GroupList address={address} flow={flow} groups={all} {...{ isAlone, uncopied, isStale }} />}
      {groups.value && address.group && (
        <>
          <p>
            <Link to={at({ view: "groups", flow })}>All groups of {flow}</Link>
          </p>
          {one ? <OneGroup address={address} group={one} uncopied={uncopied} isStale={isStale} /> : <p class="note">{isAlone ? "The target has no checkpoint of" : "There is no"} group {address.group}.</p>}
        </>
      )}
    </>
  );
}

const leftOut = (group: GroupBody) =>
  group.left_out.length ? `It has commits also in topics that are not copied: ${group.left_out.join(", ")}` : "";

/** The topics of a flow that are not copied, or not all of them. */
type Uncopied = Set<string>;

/** Partitions of which it has read records that are not on the target, and do not come by themselves. */
const missing = (group: GroupBody, uncopied: Uncopied) =>
  group.partitions.filter((one) => `${one.waits_for} ${one.note}`.includes(NOT_THERE) && uncopied.has(one.topic));

function Ready({ group, uncopied, isStale }: { group: GroupBody; uncopied: Uncopied; isStale: boolean }) {
  const now: [string, Tone] = missing(group, uncopied).length
    ? ["lacks records", "bad"]
    : group.follows
    ? ["at its last checkpoint", group.left_out.length ? "warn" : "good"]
    : !group.ready
    ? ["not ready", "bad"]
    : group.left_out.length
      ? ["ready in part", "warn"]
      : ["ready", "good"];
  const [word, tone] = isStale ? staleTone(now) : now;
  return <Badge tone={tone}>{word}</Badge>;
}

/** Why it is not ready. A group that runs has always read on since its last checkpoint: that is no reason. */
const because = (group: GroupBody, uncopied: Uncopied) => {
  const lacks = missing(group, uncopied);
  if (lacks.length)
    return `${lacks[0]?.topic}-${lacks[0]?.partition}${lacks.length > 1 ? ` and ${lacks.length - 1} more` : ""}: these records are not on the target`;
  const note = group.follows && group.note.includes(NOT_THERE) ? "" : group.note;
  return (group.follows ? "" : group.why) || leftOut(group) || note || (group.follows ? "it runs, and each checkpoint takes it along" : "");
};

/** In the worker's words: a group has read records that are not copied. */
const NOT_THERE = "not on the target";

const OF_MEMBERS: Record<string, string> = { Stable: "runs", Empty: "stopped", Dead: "gone" };
/** A state of Kafka in a plain word, with that of Kafka where ours says less. */
const state = (word: string, none: string) => (word ? (OF_MEMBERS[word] ?? `changes members (${word})`) : none);

const STATES = "runs: it has members (Stable); stopped: it has none (Empty)";

const again = (value: number | null) => (value === null ? "not known" : value ? `up to ${count(value)}` : "none");

function GroupList(props: {
  address: Address;
  flow: string;
  groups: GroupBody[];
  /** The target alone tells of them. */
  isAlone: boolean;
  uncopied: Uncopied;
  isStale: boolean;
}) {
  const { address, flow, groups, isAlone, uncopied, isStale } = props;
  const wanted = address.q.toLowerCase();
  const shown = groups.filter(
    (one) => one.group.toLowerCase().includes(wanted) && (address.show !== "problems" || !(one.ready || one.follows) || missing(one, uncopied).length > 0),
  );
  const set = (part: Partial<Address>) => go({ ...address, flow, ...part }, { replace: true });
  const columns: Column<GroupBody>[] = [
    {
      name: "group",
      title: "Group",
      by: (one) => one.group,
      cell: (one) => <Link to={at({ view: "groups", flow, group: one.group })}>{one.group}</Link>,
    },
    {
      name: "ready",
      title: "Can move to the target",
      by: (one) => (missing(one, uncopied).length ? 0 : one.follows ? 2 : one.ready ? 3 : 1),
      cell: (one) => <Ready group={one} uncopied={uncopied} isStale={isStale} />,
    },
    {
      name: "why",
      title: "Because",
      isWide: true,
      cell: (one) => (
        <span class="why" title={because(one, uncopied)}>
          {because(one, uncopied)}
        </span>
      ),
    },
    {
      name: "again",
      title: "Records it reads again",
      isNumber: true,
      by: (one) => one.reads_again_at_most ?? Infinity,
      cell: (one) => again(one.reads_again_at_most),
    },
    { name: "exact", title: "At the exact record", isWide: true, by: (one) => (one.is_exact ? 1 : 0), cell: (one) => (one.is_exact ? "yes" : "no") },
    { name: "lag", title: "Lag on the source", isNumber: true, by: (one) => one.lag ?? -1, cell: (one) => count(one.lag) },
    { name: "state", title: "On the source", isWide: true, by: (one) => one.state, cell: (one) => <span title={STATES}>{state(one.state, "not known")}</span> },
    { name: "target", title: "On the target", isWide: true, by: (one) => one.state_on_target, cell: (one) => <span title={STATES}>{state(one.state_on_target, "no such group")}</span> },
  ];
  return (
    <>
      <div class="filters">
        <label>
          <input
            type="checkbox"
            checked={address.show === "problems"}
            onChange={(event) => set({ show: event.currentTarget.checked ? "problems" : "" })}
          />{" "}
          only those that are not ready
        </label>
        <label>
          Name <input type="search" value={address.q} onInput={(event) => set({ q: event.currentTarget.value })} />
        </label>
        <span class="muted">
          {count(shown.length)} of {plural(groups.length, "group")}
        </span>
      </div>
      <Rows
        label={`Consumer groups of ${flow}`}
        rows={shown}
        keyOf={(one) => one.group}
        sort={address.sort || "ready"}
        onSort={(sort) => set({ sort })}
        empty={groups.length ? "No group fits." : isAlone ? "The target has a checkpoint of no group." : "No consumer group has committed offsets of these topics."}
        columns={columns}
      />
    </>
  );
}

function OneGroup(props: { address: Address; group: GroupBody; uncopied: Uncopied; isStale: boolean }) {
  const { address, group, uncopied, isStale } = props;
  const columns: Column<GroupPartition>[] = [
    { name: "topic", title: "Topic", by: (one) => one.topic, cell: (one) => `${one.topic}-${one.partition}` },
    { name: "committed", title: "Committed", isNumber: true, cell: (one) => count(one.committed) },
    { name: "lag", title: "Lag", isNumber: true, by: (one) => one.lag ?? -1, cell: (one) => count(one.lag) },
    { name: "on", title: "Goes on at", isNumber: true, cell: (one) => count(one.goes_on_at) },
    { name: "there", title: "Committed on the target", isNumber: true, isWide: true, cell: (one) => count(one.committed_on_target) },
    { name: "again", title: "Records it reads again", isNumber: true, by: (one) => one.reads_again_at_most ?? Infinity, cell: (one) => again(one.reads_again_at_most) },
    { name: "exact", title: "At the exact record", isWide: true, cell: (one) => (one.is_exact ? `yes, by ${one.basis}` : "no") },
    { name: "waits", title: "Waits for", isWide: true, cell: (one) => <span title={one.waits_for || one.note}>{one.waits_for || one.note}</span> },
  ];
  return (
    <>
      <p>
        <Ready group={group} uncopied={uncopied} isStale={isStale} /> {because(group, uncopied)}
      </p>
      {group.left_out.length > 0 && <p class="note warn">{leftOut(group)}</p>}
      {group.refused && <p class="note bad">{group.refused}</p>}
      {group.note && <p class="note warn">{group.note}</p>}
      <Rows
        label={`Partitions of group ${group.group}`}
        rows={group.partitions}
        keyOf={(one) => `${one.topic}-${one.partition}`}
        sort={address.sort}
        onSort={(sort) => go({ ...address, sort }, { replace: true })}
        empty="It has committed no offset of these topics."
        columns={columns}
      />
    </>
  );
}
