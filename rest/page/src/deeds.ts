// What an operator may do: what will happen in sentences, how much is lost, and how to do the same by curl or a command.

import { type FlowBody, flowPath, type OpenGap, type PartitionBody, type QuarantinedBody, type TopicBody } from "./api";
import { count, plural } from "./format";

export interface Verb {
  name: string;
  /** What will happen, in sentences. */
  what: string;
  method: "PUT" | "POST" | "PATCH";
  path: string;
  body?: (reason: string) => object;
  /** The reason is part of the body, and the audit alone keeps it; else it is in the address, and the history keeps it. */
  isAudited?: boolean;
  headers?: Record<string, string>;
  /** The command that does the same; null: there is none. */
  command: ((reason: string) => string) | null;
  /** What stands beside the command, or why there is none. */
  ofCommand?: string;
  /** Why it cannot be done here, but by the command. */
  notHere?: string;
  /** What somebody has to agree to before. */
  agree?: string;
}

export const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
export const because = (reason: string) => (reason ? ` --reason ${quoted(reason)}` : "");

const GOES_ON = "Records that the source deletes meanwhile are a gap.";

const waiting = (lag: number | null) =>
  lag === null
    ? "How many records wait now is not known."
    : `${lag ? plural(lag, "record") : "No record"} ${lag > 1 ? "wait" : "waits"} now.`;

/** While the source does not answer, the lag is one of before. */
const waitingOf = (one: { lag_records: number | null; lag_as_of_ms: number | null }) =>
  waiting(one.lag_as_of_ms === null ? one.lag_records : null);

export const connectorPath = (flow: string) => `/connectors/${encodeURIComponent(`${flow}.MirrorSourceConnector`)}`;
const topicPath = (flow: string, topic: string) => `${flowPath(flow)}/topics/${encodeURIComponent(topic)}`;

export function verbsOfFlow(flow: FlowBody): Verb[] {
  const path = connectorPath(flow.flow);
  const command = (name: string) => (reason: string) => `mm2py ${name} FILE ${quoted(flow.flow)}${because(reason)}`;
  const lag = flow.lag_is_partial ? null : flow.lag_records;
  const resume: Verb = {
    name: "resume",
    what: `${flow.flow} goes on: each partition behind its last record. ${waiting(lag)}`,
    method: "PUT",
    path: `${path}/resume`,
    command: command("resume"),
  };
  const pause: Verb = {
    name: "pause",
    what:
      `All workers drain ${flow.flow} within about two seconds, and nothing of it is copied until someone resumes it, also after restarts.` +
      ` ${waiting(lag)} ${GOES_ON}`,
    method: "PUT",
    path: `${path}/pause`,
    command: command("pause"),
  };
  const stop: Verb = {
    name: "stop",
    what:
      `It does what a pause does: all workers drain ${flow.flow}, and nothing of it is copied until someone resumes it, also after restarts.` +
      " Besides, while it is stopped its offsets may be altered over REST, and then records may be left out, or copied again." +
      ` ${waiting(lag)} ${GOES_ON}`,
    method: "PUT",
    path: `${path}/stop`,
    command: null,
    ofCommand: "No command stops a flow; mm2py pause does the same but for the offsets.",
  };
  const restart: Verb = {
    name: "restart",
    what: `Each worker drains ${flow.flow} and starts it again, once. Nothing is repeated, and nothing is left out.`,
    method: "POST",
    path: `${path}/restart?includeTasks=true`,
    command: null,
    ofCommand: "No command restarts a flow.",
  };
  if (flow.why.startsWith("both-on")) return []; // it is turned on and off by mm2py dr turn, and nobody has paused it
  if (flow.state === "held") return flow.why.startsWith("stopped") ? [resume] : [resume, stop];
  return flow.state === "running" ? [pause, stop, restart] : [];
}

export function verbsOfTopic(flow: string, topic: TopicBody): Verb[] {
  const path = topicPath(flow, topic.topic);
  const command = (name: string) => (reason: string) =>
    `mm2py ${name} FILE ${quoted(flow)} --topic ${quoted(topic.topic)}${because(reason)}`;
  const pause: Verb = {
    name: "pause",
    what:
      `Workers stop reading ${topic.topic} of ${flow} within about a second, with all its partitions and those that are added later.` +
      " It stays paused, whatever happens to workers, until someone resumes it, and the flow is not safe to fail over until then." +
      ` ${waitingOf(topic)} ${GOES_ON}`,
    method: "PUT",
    path: `${path}/pause`,
    command: command("pause"),
  };
  const resume: Verb = {
    name: "resume",
    what: `${topic.topic} of ${flow} goes on behind its last record, with those of its partitions that are paused alone. ${waitingOf(topic)}`,
    method: "PUT",
    path: `${path}/resume`,
    command: command("resume"),
  };
  const restart: Verb = {
    name: "restart",
    what:
      `What the target has not acknowledged of ${topic.topic} is forgotten and read again from the stored positions. Nothing is repeated.` +
      " It ends a pause, and a refused topic is looked at again. A partition that a gap has stopped stays so.",
    method: "POST",
    path: `${path}/restart`,
    command: null,
    ofCommand: "No command restarts a topic.",
  };
  const isPaused = topic.not_copied.some((one) => one.reason === "paused");
  return [isPaused ? resume : pause, restart];
}

export function verbsOfPartition(flow: string, topic: string, one: PartitionBody): Verb[] {
  const path = `${topicPath(flow, topic)}/partitions/${one.partition}`;
  const name = `${topic}/${one.partition}`;
  const command = (verb: string) => (reason: string) =>
    `mm2py ${verb} FILE ${quoted(flow)} --partition ${quoted(name)}${because(reason)}`;
  const latest = [...one.open_gaps].sort((a, b) => b.at_ms - a.at_ms)[0];
  const gaps = latest ? [accepting(flow, latest)] : [];
  const paused = one.not_copied.find((why) => why.reason === "paused");
  if (!paused) {
    const pause: Verb = {
      name: "pause",
      what:
        `Its worker stops reading ${name} of ${flow} within about a second; the other partitions go on. It stays paused until it, or its topic, is resumed,` +
        ` and the flow is not safe to fail over until then. ${waitingOf(one)} ${GOES_ON}`,
      method: "PUT",
      path: `${path}/pause`,
      command: command("pause"),
    };
    return [...gaps, pause];
  }
  if (!paused.partitions) return gaps; // all of its topic is: no partition goes on alone
  const at = one.position === null ? "" : `, at source offset ${count(one.position)}`;
  const resume: Verb = {
    name: "resume",
    what: `${name} of ${flow} goes on behind its last record${at}. ${waitingOf(one)}`,
    method: "PUT",
    path: `${path}/resume`,
    command: command("resume"),
  };
  return [...gaps, resume];
}

/** Let a partition go on that a gap has stopped. */
export function accepting(flow: string, gap: OpenGap): Verb {
  const name = `${gap.topic}:${gap.partition}`;
  return {
    name: "accept",
    what: `${gap.text.charAt(0).toUpperCase()}${gap.text.slice(1)}. ${whatFollows(gap)} If another gap stops it by then, nothing is accepted.`,
    method: "POST",
    path: `${topicPath(flow, gap.topic)}/partitions/${gap.partition}/accept`,
    isAudited: true,
    body: (reason) => ({ position: gap.position, ...(reason ? { reason } : {}) }),
    command: () => `mm2py gaps FILE accept ${quoted(`${flow}:${name}`)}`,
    ofCommand: "The command accepts whichever gap stops it then.",
  };
}

/** What becomes of the records of a gap that is accepted, by what happened to them. */
function whatFollows(gap: OpenGap): string {
  const { first_offset: first, last_offset: last } = gap;
  const known = first !== null && last !== null;
  const which = known
    ? `source offsets ${count(first)} to ${count(last)} (${plural(Math.max(0, last - first + 1), "offset")}, perhaps fewer records)`
    : "records whose number is not known";
  const part = `${gap.topic}-${gap.partition}`;
  switch (gap.kind) {
    case "expired":
      return `If you accept it, ${which} stay out of the copy for good, and so does what the source has deleted since. ${part} goes on at the first record that the source still has.`;
    case "truncated":
      return `If you accept it, the copy keeps what the source has lost (${which}), and what stands there now is copied behind it.`;
    case "target-truncated":
      return `If you accept it, what the target has lost stays out of the copy: records before source offset ${count(gap.position)}, whose number is not known. ${part} goes on at that offset.`;
    case "foreign-records":
    case "repeated-records":
      return `If you accept it, what stands in the copy stays there, and ${part} goes on behind it, at source offset ${count(gap.position)}. No record of the source is left out.`;
    case "transforms-changed":
      return `If you accept it, ${part} goes on at source offset ${count(gap.position)}: what the previous owner copied behind it with other transforms is copied once more. No record of the source is left out.`;
    case "recreated":
    case "target-deleted":
      return `If you accept it, ${gap.topic} is copied from the first record that the source has, once all its stopped partitions are accepted. What the copy holds already stays.`;
    default:
      return `If you accept it, ${part} goes on, and ${which} stay as they are.`;
  }
}

const REPLAY_MOST = 200;

/** Take records of one topic out of quarantine: all that wait, or one. */
export function replaying(flow: string, records: QuarantinedBody[], one: QuarantinedBody | null, stops: boolean): Verb {
  const topic = one?.topic ?? records[0]?.topic ?? "";
  const partitions = new Map<number, number[]>();
  for (const { partition, offset } of records) partitions.set(partition, [...(partitions.get(partition) ?? []), offset]);
  const where = [...partitions].map(([number, offsets]) => {
    const shown = offsets.slice(0, 8).map(count).join(", ");
    return `${topic}-${number} at ${shown}${offsets.length > 8 ? ` and ${count(offsets.length - 8)} more` : ""}`;
  });
  const alone = one ? ` --partition ${one.partition} --offset ${one.offset}` : "";
  const target = flow.split("->")[1];
  const accept = `partitions ${[...partitions.keys()].join(", ")} of ${topic} stop, until their gaps are accepted`;
  return {
    name: "replay",
    what:
      `${plural(records.length, "record")} (${where.slice(0, 8).join("; ")}${where.length > 8 ? "; …" : ""}) go to the end of the copy of ${topic}` +
      ` on ${target}, behind what was copied since: their order among the others is given up for good. Consumers of the copy read them then.` +
      (one ? "" : " So do others of it that are put in quarantine until then.") +
      " Those that the target still refuses stay in quarantine.",
    method: "POST",
    path: `${topicPath(flow, topic)}/replay`,
    isAudited: true,
    body: (reason) => ({
      ...(one ? { partition: one.partition, offset: one.offset } : {}),
      ...(stops ? { stop_partitions: true } : {}),
      ...(reason ? { reason } : {}),
    }),
    command: () => `mm2py replay FILE ${quoted(`${flow}:${topic}`)} --append --yes${stops ? " --stop-partitions" : ""}${alone}`,
    ...(stops
      ? { agree: `The flow runs with exactly.once.source.support=enabled: as after any foreign writer, ${accept}.` }
      : {}),
    ...(records.length > REPLAY_MOST
      ? { notHere: `A request appends ${REPLAY_MOST} records at most. Replay one by one here, or use the command for all.` }
      : {}),
  };
}
