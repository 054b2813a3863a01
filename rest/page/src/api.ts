// Requests to the worker that served this page, and the part of its answers that the page shows.

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export interface Answer<T> {
  body: T;
  /** When the clusters were looked at, by the worker's clock. Null: the answer does not tell. */
  lookedAtMs: number | null;
  /** How old the look was when it was sent, in seconds. */
  ageS: number | null;
}

export interface ListAnswer<T> extends Answer<T[]> {
  /** What could not be read, so that items may be missing. */
  unread: string[];
}

export interface Page<T> {
  items: T[];
  next: string | null;
  total: number;
  unread?: string[];
}

export interface Session {
  user: string;
  role: string;
  /** May recover, too. */
  recovers: boolean;
  flows: string[] | null;
  login: "users" | "token" | "none";
  is_session: boolean;
}

export type Readiness = "safe" | "behind" | "incomplete" | "unknown" | "not-copied";

export interface FlowBody {
  flow: string;
  state: string;
  why: string;
  verdict: {
    readiness: Readiness;
    text: string;
    safe_at_ms: number | null;
    behind_s: number | null;
    /** The partition that is furthest behind, as orders-3. */
    oldest: string;
    left_out: { topic: string; reason: string; partitions: string }[];
    /** What the text says, point by point. */
    parts: string[];
  } | null;
  /** What would be lost if the source were lost now. */
  loss: string;
  /** What limits the flow; null: nothing could be read of it. */
  bottleneck: { cause: string; text: string; remedy: string } | null;
  guarantee: { level: string; reasons: string[] } | null;
  coordinator: string | null;
  workers: number;
  unowned: number;
  topics_copied: number;
  topics_not_copied: number;
  topics_waiting: number;
  lag_records: number | null;
  lag_is_partial: boolean;
  lag_bytes: number | null;
  lag_s: number | null;
  lag_note: string;
  lag_as_of_ms: number | null;
  open_gaps: number;
  settings_version: number;
  consumer_groups: {
    not_ready: { group: string; why: string }[];
    reads_again_at_most: number | null;
    reads_most_again: string;
  } | null;
  unread: string[];
}

export interface ClusterBody {
  cluster: string;
  is_reachable: boolean;
  why: string;
  source_of: string[];
  target_of: string[];
  group: string | null;
}

export interface WorkerBody {
  target: string;
  group: string;
  leader_epoch?: number | null;
  generation?: number | null;
  member: {
    member: string;
    name: string;
    version: string;
    core: string;
    state: string;
    leads: boolean;
    last_seen_ms_ago: number | null;
    flows: string[];
    tasks: number;
    bytes_per_s: number;
  };
}

export interface Movement {
  bytes: number | null;
  per_s: number | null;
  trend: string;
  catch_up_s: number | null;
  since_ms: number | null;
  retention_share: number | null;
  expiry: string;
  expires_s: number | null;
}

export interface NotCopied {
  reason: string;
  why: string;
  remedy: string;
  partitions: string;
  since_ms: number | null;
}

export interface TopicBody {
  topic: string;
  remote_topic: string;
  is_copied: boolean;
  reason: string | null;
  why: string;
  remedy: string;
  since_ms: number | null;
  not_copied: NotCopied[];
  lag_records: number | null;
  lag_bytes: number | null;
  lag_s: number | null;
  lag_note: string;
  lag_as_of_ms: number | null;
  /** How many partitions copy how. */
  modes: Record<string, number>;
  copy: { partitions: number; owners: Record<string, string>; open_gaps: number; movement: Movement | null } | null;
}

export interface PartitionBody {
  partition: number;
  start: number | null;
  position: number | null;
  end: number | null;
  target_position: number | null;
  lag_records: number | null;
  lag_s: number | null;
  lag_note: string;
  lag_as_of_ms: number | null;
  movement: Movement | null;
  mode: string | null;
  owner: string | null;
  owner_name: string;
  waits_for: string | null;
  open_gaps: OpenGap[];
  not_copied: NotCopied[];
}

export interface HistoryEvent {
  at_ms: number;
  kind: string;
  text: string;
}

export interface HistoryBody {
  from_ms: number;
  to_ms: number;
  step_s: number;
  times_ms: number[];
  series: Record<string, (number | null)[]>;
  events: HistoryEvent[];
  newest_ms: number | null;
  problem: string;
}

export interface GroupPartition {
  topic: string;
  partition: number;
  committed: number | null;
  lag: number | null;
  remote_topic: string;
  goes_on_at: number | null;
  reads_again_at_most: number | null;
  committed_on_target: number | null;
  waits_for: string;
  is_exact: boolean;
  basis: string;
  note: string;
}

export interface GroupBody {
  group: string;
  state: string;
  state_on_target: string;
  lag: number | null;
  reads_again_at_most: number | null;
  ready: boolean;
  why: string;
  partitions: GroupPartition[];
  is_exact: boolean;
  note: string;
  refused: string;
  left_out: string[];
  /** It runs on the source, and could go on at its last checkpoint. */
  follows: boolean;
}

export interface GroupsPage {
  unread: string;
  groups: GroupBody[];
  next: string | null;
  total: number;
}

/** What a gap is accepted by. */
export interface OpenGap {
  topic: string;
  partition: number;
  kind: string;
  first_offset: number | null;
  last_offset: number | null;
  position: number;
  at_ms: number;
  text: string;
}

export interface GapBody extends OpenGap {
  done: string;
  open: boolean;
}

export interface QuarantinedBody {
  topic: string;
  partition: number;
  offset: number;
  topic_id: string | null;
  error_text: string;
  quarantined_at_ms: number;
  replayed_at_ms: number | null;
}

export interface BackfillBody {
  id: string;
  flow: string | { source: string; target: string };
  state: string;
  topics: string[];
  partitions: number;
  offsets_copied: number;
  offsets: number;
  begun_at_ms: number;
  last_seen_ms_ago: number;
  resumed: number;
  by: string;
  text: string;
  where: string;
  select: string;
  is_holding: boolean;
  is_dead: boolean;
}

export interface SettingBody {
  name: string;
  value: string | null;
  default: string | null;
  origin: string;
  file: { key: string; line: number | null; value: string } | null;
  differs: boolean;
  effect: string;
  may_change: boolean;
  in_place: boolean;
}

/** What a change of settings would come to. */
export interface PlannedSettings {
  version: number;
  changes: { name: string; old: string | null; new: string | null; in_place: boolean; concerns: string[] }[];
  restarts: boolean;
  errors: Record<string, string>;
  problem: string;
  without_effect: string[];
}

/** What a setting is, as Connect's plug-ins have it. */
export interface Definition {
  name: string;
  type: "BOOLEAN" | "LIST" | "LONG" | "STRING";
  documentation: string;
}

export interface SettingsBody {
  flow: string;
  stored: { version: number; by: string; at_ms: number; user: string; host: string; reason: string } | null;
  settings: SettingBody[];
}

export interface RecoveryCheck {
  text: string;
  at_ms: number;
  cutover: string;
  failover: string;
  obstacles: { kind: string; text: string; way_out: string; is_doubt: boolean }[];
}

export interface RecoveryJob {
  id: string;
  verb: string;
  flow: string;
  user: string;
  reason: string;
  begun_at_ms: number;
  ended_at_ms: number | null;
  exit_code: number | null;
  lines: string[];
  now: string;
  text: string;
}

export interface RecoveryVerb {
  verb: string;
  text: string;
  options: string[];
}

export interface RecoveryRun {
  run: string;
  verb: string;
  flow: string;
  state: string;
  begun_ms: number;
  steps: {
    number: number;
    at_ms: number;
    state: string;
    event: string;
    took_ms: number | null;
    user: string;
    text: string;
  }[];
}

export interface RecoveriesBody {
  standing: { run: string; verb: string; flow: string; state: string; at_ms: number | null };
  problem: string;
  why_not: string;
  verbs: RecoveryVerb[];
  hooks: string[];
  job: RecoveryJob | null;
  runs: RecoveryRun[];
}

export interface RecoveryPlan {
  hash: string;
  lines: string[];
  may_begin: boolean;
  why_not: string;
  goes_on: boolean;
  command: string;
}

export interface RecoveryCalled {
  plan: RecoveryPlan;
  job: RecoveryJob | null;
}

export interface EventBody {
  kind: string;
  at_ms: number;
  flow: string | null;
  group: string | null;
  text: string;
  /** For programs; the histories do not have it. */
  data?: Record<string, unknown>;
}

const ANSWER_MOST_MS = 20_000;
const PAGE_OF = 1000;
/** Only this page sends it: without it the worker takes no notice of the session's cookie. */
const OURS = { "Mm2py-Page": "1" };

interface Ways {
  headers?: Record<string, string>;
  /** Sent as JSON. */
  body?: unknown;
  signal?: AbortSignal | undefined;
  mostMs?: number;
}

/** Ask the worker. Throws ApiError, also where there is no answer (status 0). */
export async function ask(method: string, path: string, { headers, body, signal, mostMs = ANSWER_MOST_MS }: Ways = {}) {
  const late = AbortSignal.timeout(mostMs);
  const ofBody = body === undefined ? {} : { "Content-Type": "application/json" };
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers: { Accept: "application/json", ...OURS, ...ofBody, ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: signal ? AbortSignal.any([signal, late]) : late,
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, late.aborted ? `The worker has not answered for ${mostMs / 1000} s.` : "The worker cannot be reached.");
  }
  if (!answer.ok) {
    const said = (await answer.json().catch(() => ({}))) as { message?: string };
    throw new ApiError(answer.status, said.message ?? `The worker answers with HTTP ${answer.status}.`);
  }
  return answer;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<Answer<T>> {
  const answer = await ask("GET", path, { signal });
  const lookedAt = Number(answer.headers.get("Mm2py-Looked-At") ?? NaN);
  const sentAtMs = Date.parse(answer.headers.get("Date") ?? "");
  const known = !Number.isNaN(lookedAt) && !Number.isNaN(sentAtMs);
  return {
    body: (await answer.json()) as T,
    lookedAtMs: Number.isNaN(lookedAt) ? null : lookedAt,
    ageS: known ? Math.max(0, (sentAtMs - lookedAt) / 1000) : null,
  };
}

/** Read all pages of a list; `part` gets what is there so far, after each page. */
export async function getAll<T>(
  path: string,
  signal: AbortSignal,
  part?: (items: T[], total: number) => void,
): Promise<ListAnswer<T>> {
  const items: T[] = [];
  const unread = new Set<string>();
  let after: string | null = null;
  let first: Answer<Page<T>> | null = null;
  do {
    const cursor: string = after === null ? "" : `&after=${encodeURIComponent(after)}`;
    const found: Answer<Page<T>> = await get(`${path}${path.includes("?") ? "&" : "?"}limit=${PAGE_OF}${cursor}`, signal);
    first ??= found;
    items.push(...found.body.items);
    found.body.unread?.forEach((one) => unread.add(one));
    after = found.body.next;
    if (after !== null) part?.(items.slice(), found.body.total);
  } while (after !== null);
  return { lookedAtMs: first.lookedAtMs, ageS: first.ageS, body: items, unread: [...unread] };
}

export const flowPath = (flow: string) => `/v1/flows/${encodeURIComponent(flow)}`;

export async function logIn(user: string, password: string): Promise<void> {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  const proof = btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join(""));
  await ask("POST", "/session", { headers: { Authorization: user ? `Basic ${proof}` : `Bearer ${password}` } });
}

export const logInOnce = (code: string) => ask("POST", "/session", { headers: { Authorization: `Once ${code}` } });

export const logOut = () => ask("DELETE", "/session");
