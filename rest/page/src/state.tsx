// How good or bad something is: a word, and a colour beside it that nobody needs to see.

import type { FlowBody } from "./api";
import { sentence } from "./format";

export type Tone = "good" | "warn" | "bad" | "off";

const OF_READINESS: Record<string, [string, Tone]> = {
  safe: ["safe", "good"],
  behind: ["behind", "warn"],
  incomplete: ["incomplete", "bad"],
  unknown: ["not known", "warn"],
  "not-copied": ["not copied", "bad"],
};

export function toneOf(flow: FlowBody): [string, Tone] {
  if (flow.state === "switched-off") return ["switched off", "off"];
  if (flow.state === "held") return ["held", "warn"];
  if (flow.state === "standby") return ["standby", "off"];
  if (!flow.verdict) return [flow.state, "bad"];
  return OF_READINESS[flow.verdict.readiness] ?? [flow.verdict.readiness, "warn"];
}

const ORDER = ["bad", "warn", "off", "good"];

export const worstFirst = (flows: FlowBody[]) =>
  [...flows].sort((a, b) => ORDER.indexOf(toneOf(a)[1]) - ORDER.indexOf(toneOf(b)[1]) || a.flow.localeCompare(b.flow));

/** What is said of a flow of which nothing has been heard for a while: nothing is good any more. */
export const staleTone = ([word, tone]: [string, Tone]): [string, Tone] =>
  tone === "good" ? [`was ${word}`, "off"] : [word, tone];

/** What is said of a flow, the most important point first. */
export function pointsOf(flow: FlowBody): string[] {
  const [first = "", ...others] = flow.verdict?.parts ?? [flow.why];
  return [/^(safe|not) /.test(first) ? sentence(first) : first, ...others]; // else it may begin with the name of a cluster
}

export const Badge = ({ tone, children }: { tone: Tone; children: string }) => (
  <span class={`badge ${tone}`}>{children}</span>
);
