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
  return (
    <>
      <h1>
        <FlowChoice address={address} flow={flow} flows={known} /> {address.group || "consumer groups"}
      </h1>
      {flow && <Freshness of={groups} what={`the groups of ${flow}`} />}
      {flow && !groups.value && !groups.error && <Waiting what={`the groups of ${flow}`} />}
      {groups.value?.unread && <p class="note warn">Only the target tells of them, as of their last checkpoints: {groups.value.unread}</p>}
      {groups.value && !address.group && <GroupList address={address} flow={flow} groups={all} isAlone={isAlone} isStale={isStale} />}
      {groups.value && address.group && (
        <>
          <p>
            <Link to={at({ view: "groups", flow })}>All groups of {flow}</Link>
          </p>
          {one ? <OneGroup address={address} group={one} isStale={isStale} /> : <p class="note">{isAlone ? "The target has no checkpoint of" : "There is no"} group {address.group}.</p>}
        </>
      )}
    </>
  );
}

const leftOut = (group: GroupBody) =>
  group.left_out.length ? `It has commits also in topics that are not copied: ${group.left_out.join(", ")}` : "";

function Ready({ group, isStale }: { group: GroupBody; isStale: boolean }) {
  const now: [string, Tone] = !group.ready
    ? ["not ready", "bad"]
    : group.left_out.length
      ? ["ready in part", "warn"]
      : ["ready", "good"];
  const [word, tone] = isStale ? staleTone(now) : now;
  return <Badge tone={tone}>{word}</Badge>;
}

const because = (group: GroupBody) => group.why || leftOut(group) || group.note;

const again = (value: number | null) => (value === null ? "not known" : value ? `up to ${count(value)}` : "none");

function GroupList(props: {
  address: Address;
  flow: string;
  groups: GroupBody[];
  /** The target alone tells of them. */
  isAlone: boolean;
  isStale: boolean;
}) {
  const { address, flow, groups, isAlone, isStale } = props;
  const wanted = address.q.toLowerCase();
  const shown = groups.filter(
    (one) => one.group.toLowerCase().includes(wanted) && (address.show !== "problems" || !one.ready),
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
      title: "Could go on on the target",
      by: (one) => (one.ready ? 1 : 0),
      cell: (one) => <Ready group={one} isStale={isStale} />,
    },
    {
      name: "why",
      title: "Because",
      isWide: true,
      cell: (one) => <span title={because(one)}>{because(one)}</span>,
    },
    {
      name: "again",
      title: "Reads again",
      isNumber: true,
      by: (one) => one.reads_again_at_most ?? Infinity,
      cell: (one) => again(one.reads_again_at_most),
    },
    { name: "exact", title: "Exact", isWide: true, by: (one) => (one.is_exact ? 1 : 0), cell: (one) => (one.is_exact ? "yes" : "no") },
    { name: "lag", title: "Lag on the source", isNumber: true, by: (one) => one.lag ?? -1, cell: (one) => count(one.lag) },
    { name: "state", title: "On the source", isWide: true, by: (one) => one.state, cell: (one) => one.state || "not known" },
    { name: "target", title: "On the target", isWide: true, by: (one) => one.state_on_target, cell: (one) => one.state_on_target || "no such group" },
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

function OneGroup({ address, group, isStale }: { address: Address; group: GroupBody; isStale: boolean }) {
  const columns: Column<GroupPartition>[] = [
    { name: "topic", title: "Topic", by: (one) => one.topic, cell: (one) => `${one.topic}-${one.partition}` },
    { name: "committed", title: "Committed", isNumber: true, cell: (one) => count(one.committed) },
    { name: "lag", title: "Lag", isNumber: true, by: (one) => one.lag ?? -1, cell: (one) => count(one.lag) },
    { name: "on", title: "Goes on at", isNumber: true, cell: (one) => count(one.goes_on_at) },
    { name: "there", title: "Committed on the target", isNumber: true, isWide: true, cell: (one) => count(one.committed_on_target) },
    { name: "again", title: "Reads again", isNumber: true, by: (one) => one.reads_again_at_most ?? Infinity, cell: (one) => again(one.reads_again_at_most) },
    { name: "exact", title: "Exact", isWide: true, cell: (one) => (one.is_exact ? `yes, by ${one.basis}` : "no") },
    { name: "waits", title: "Waits for", isWide: true, cell: (one) => <span title={one.waits_for || one.note}>{one.waits_for || one.note}</span> },
  ];
  return (
    <>
      <p>
        <Ready group={group} isStale={isStale} /> {group.why}
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
