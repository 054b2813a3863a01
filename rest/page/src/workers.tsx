// The workers of each group, who leads, and since which epoch.

import { type Answer, type FlowBody, getAll, type WorkerBody } from "./api";
import { type Address, at, go } from "./address";
import { bytes, count, seconds, UNKNOWN } from "./format";
import { Freshness, Link, MayLack, useStale, Waiting } from "./parts";
import { type Polled, usePolled } from "./poll";
import { Rows } from "./rows";
import { Badge, staleTone, type Tone } from "./state";

export function WorkersView({ address, flows }: { address: Address; flows: Polled<Answer<FlowBody[]>> }) {
  const workers = usePolled("workers", 2000, (signal) => getAll<WorkerBody>("/v1/workers", signal));
  const isStale = useStale(workers, workers.value?.ageS ?? null);
  const groups = new Map<string, WorkerBody[]>();
  for (const one of workers.value?.body ?? []) {
    const name = `${one.target} ${one.group}`;
    groups.set(name, [...(groups.get(name) ?? []), one]);
  }
  // the group of a target that does not answer is not in the list: nothing is known of its workers
  const unread = new Map<string, string>();
  for (const { flow, state, why } of flows.value?.body ?? []) {
    if (state === "unknown" && why) unread.set(flow.split("->")[1] ?? "", why);
  }
  return (
    <>
      <h1>Workers</h1>
      <Freshness of={workers} what="the workers" lookAgeS={workers.value?.ageS ?? null} />
      <MayLack unread={workers.value?.unread} what="workers" />
      {!workers.value && !workers.error && <Waiting what="the workers" />}
      {workers.value && !workers.value.body.length && <p class="note bad">No worker is known. Start one: mm2py FILE</p>}
      {[...unread].map(([target, why]) => (
        <p key={target} class="note bad">
          Nothing is known of the workers that write to {target}. {why}
        </p>
      ))}
      {[...groups].map(([name, members]) => (
        <Group key={name} members={members} address={address} isStale={isStale} />
      ))}
    </>
  );
}

/** Of a group that has stopped, the member that led it last still counts as its leader. */
const leads = ({ member }: Pick<WorkerBody, "member">) => member.leads && member.state !== "stopped";

function Group({ members, address, isStale }: { members: WorkerBody[]; address: Address; isStale: boolean }) {
  const [first] = members;
  if (!first) return null;
  const leader = members.find(leads);
  const versions = new Set(members.filter((one) => one.member.state === "alive").map((one) => one.member.version));
  return (
    <section aria-label={`Group ${first.group} into ${first.target}`}>
      <h2>
        Group {first.group}, writes to {first.target}
      </h2>
      <p class="muted">
        {leader ? `${leader.member.name} leads` : <span class="bad">No worker leads</span>}
        {first.leader_epoch != null && `, leader epoch ${count(first.leader_epoch)}`}
        {first.generation != null && `, generation ${count(first.generation)}`}
        {versions.size > 1 && <span class="warn">; versions differ: {[...versions].join(", ")}</span>}
      </p>
      <Rows
        label={`Workers of group ${first.group} into ${first.target}`}
        rows={members}
        keyOf={(one) => one.member.member}
        sort={address.sort}
        onSort={(sort) => go({ ...address, sort }, { replace: true })}
        empty=""
        columns={[
          {
            name: "name",
            title: "Worker",
            by: (one) => one.member.name,
            cell: ({ member }) => (
              <>
                {member.name} {leads({ member }) && <Badge tone="off">leader</Badge>}
              </>
            ),
          },
          {
            name: "state",
            title: "State",
            by: (one) => one.member.state,
            cell: ({ member }) => {
              const now: [string, Tone] = [member.state, member.state === "alive" ? "good" : "bad"];
              const [word, tone] = isStale ? staleTone(now) : now;
              return <Badge tone={tone}>{word}</Badge>;
            },
          },
          {
            name: "seen",
            title: "Last heartbeat",
            isNumber: true,
            by: (one) => one.member.last_seen_ms_ago ?? Infinity,
            cell: ({ member }) =>
              member.last_seen_ms_ago === null ? UNKNOWN : `${seconds(member.last_seen_ms_ago / 1000)} ago`,
          },
          { name: "tasks", title: "Tasks", isNumber: true, by: (one) => one.member.tasks, cell: (one) => count(one.member.tasks) },
          {
            name: "bytes",
            title: "Copies",
            isNumber: true,
            by: (one) => one.member.bytes_per_s,
            cell: ({ member }) => (member.state === "alive" ? `${bytes(member.bytes_per_s)}/s` : UNKNOWN), // else as last measured
          },
          {
            name: "flows",
            title: "Flows",
            isWide: true,
            cell: ({ member }) =>
              member.flows.map((flow) => (
                <>
                  <Link key={flow} to={at({ view: "topics", flow })}>
                    {flow}
                  </Link>{" "}
                </>
              )),
          },
          { name: "version", title: "Version", isWide: true, cell: ({ member }) => `${member.version}, ${member.core}` },
          { name: "member", title: "Member", isWide: true, cell: ({ member }) => <code>{member.member}</code> },
        ]}
      />
    </section>
  );
}
