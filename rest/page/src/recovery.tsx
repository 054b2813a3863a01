// Recoveries of a flow: is it ready, how they stand, the verbs with the plan of each, and how one goes, step by step.

import { useContext, useEffect, useRef, useState } from "preact/hooks";
import {
  type Answer,
  ask,
  type FlowBody,
  flowPath,
  get,
  type RecoveriesBody,
  type RecoveryCalled,
  type RecoveryCheck,
  type RecoveryJob,
  type RecoveryPlan,
  type RecoveryRun,
  type RecoveryVerb,
  type Session,
} from "./api";
import type { Address } from "./address";
import { FlowChoice, flowOf } from "./choice";
import { because, quoted } from "./deeds";
import { seconds, time } from "./format";
import { Freshness, Waiting } from "./parts";
import { type Polled, usePolled } from "./poll";
import { Copied, Reason, userOfCurl, Who, whyNot } from "./verbs";

const RUNNING_EVERY_MS = 1000;
const QUIET_EVERY_MS = 4000;
const CHECK_EVERY_MS = 15_000;
/** A plan asks both clusters much. */
const PLAN_MOST_MS = 150_000;

export function RecoveryView({ address, flows }: { address: Address; flows: Polled<Answer<FlowBody[]>> }) {
  const known = flows.value?.body ?? [];
  const flow = flowOf(address, known);
  const who = useContext(Who);
  const [verb, setVerb] = useState<RecoveryVerb | null>(null);
  const [everyMs, setEveryMs] = useState(QUIET_EVERY_MS);
  const path = flow ? `${flowPath(flow)}/dr` : null;
  const found = usePolled(path, everyMs, (signal) => get<RecoveriesBody>(path ?? "", signal));
  const check = usePolled(path && `${path}/check`, CHECK_EVERY_MS, (signal) => get<RecoveryCheck>(`${path}/check`, signal));
  const body = found.value?.body;
  const isRunning = !!body?.job && body.job.ended_at_ms === null;
  useEffect(() => setEveryMs(isRunning ? RUNNING_EVERY_MS : QUIET_EVERY_MS), [isRunning]);
  return (
    <>
      <h1>
        <FlowChoice address={address} flow={flow} flows={known} /> recovery
      </h1>
      <section aria-labelledby="ready" class="panel">
        <h2 id="ready">Is it ready</h2>
        <Freshness of={check} what={`the readiness of ${flow}`} />
        {flow && !check.value && !check.error && <Waiting what={`the readiness of ${flow}`} />}
        {check.value && <Readiness check={check.value.body} />}
      </section>
      <section aria-labelledby="standing" class="panel">
        <h2 id="standing">How it stands</h2>
        <Freshness of={found} what={`the recoveries of ${flow}`} />
        {flow && !body && !found.error && <Waiting what={`the recoveries of ${flow}`} />}
        {body && <Standing body={body} />}
        {body && who && <VerbsOfRecovery body={body} who={who} onVerb={setVerb} isRunning={isRunning} />}
      </section>
      {body?.job && <Job job={body.job} />}
      {body && body.runs.length > 0 && (
        <section aria-labelledby="runs" class="panel">
          <h2 id="runs">Runs</h2>
          {[...body.runs].reverse().map((run) => (
            <Run key={run.run} run={run} />
          ))}
        </section>
      )}
      {verb && who && body && (
        <Planned key={verb.verb} flow={flow} verb={verb} hooks={body.hooks} who={who} onClose={() => setVerb(null)} />
      )}
    </>
  );
}

function Readiness({ check }: { check: RecoveryCheck }) {
  return (
    <>
      <p class="sentence pre">{check.text}</p>
      {check.obstacles.map((one) => (
        <p key={one.kind + one.text} class={`note ${one.is_doubt ? "warn" : "bad"}`}>
          {one.text}. {one.way_out} <span class="muted">[{one.kind}]</span>
        </p>
      ))}
      <p class="muted">as of {time(check.at_ms)}</p>
    </>
  );
}

function Standing({ body }: { body: RecoveriesBody }) {
  const { standing } = body;
  return (
    <>
      {body.problem && <p class="note warn">Not all is known. {body.problem}</p>}
      {standing.run ? (
        <p class="sentence">
          {standing.verb} of {standing.flow.replace("->", " → ")}: <b>{standing.state}</b> since {time(standing.at_ms)}
        </p>
      ) : (
        !body.problem && <p class="sentence">No recovery has run.</p>
      )}
    </>
  );
}

function VerbsOfRecovery(props: {
  body: RecoveriesBody;
  who: Session;
  isRunning: boolean;
  onVerb: (verb: RecoveryVerb) => void;
}) {
  const { body, who, isRunning, onVerb } = props;
  if (body.why_not) return <p class="note">{body.why_not}</p>;
  if (!who.recovers) return <p class="note">A recovery takes a user with the role recover.</p>;
  return (
    <div class="verbs">
      {body.verbs.map((verb) => (
        <button key={verb.verb} type="button" disabled={isRunning} onClick={() => onVerb(verb)}>
          {verb.verb} …
        </button>
      ))}
    </div>
  );
}

function Job({ job }: { job: RecoveryJob }) {
  const isRunning = job.ended_at_ms === null;
  const end = isRunning ? "runs" : job.exit_code === 0 ? "done" : "ended";
  return (
    <section aria-labelledby="job" class="panel">
      <h2 id="job">
        {job.verb} of {job.flow.replace("->", " → ")}: {end}
      </h2>
      <p class="muted">
        begun {time(job.begun_at_ms)} by {job.user}
        {job.reason && `: ${job.reason}`}
      </p>
      <pre class="lines" role="log" tabIndex={0} aria-label="What it has told">
        {job.lines.join("\n")}
      </pre>
      {job.now && <p class="note">{job.now}</p>}
      {job.text && <p class={`note ${job.exit_code === 0 ? "" : "bad"}`}>{job.text}</p>}
    </section>
  );
}

function Run({ run }: { run: RecoveryRun }) {
  return (
    <details>
      <summary>
        {run.verb} of {run.flow.replace("->", " → ")}: {run.state}, begun {time(run.begun_ms)}
      </summary>
      <ol>
        {run.steps.map((step) => (
          <li key={step.number}>
            {time(step.at_ms)} <b>{step.state}</b>, by {step.event}
            {step.took_ms !== null && `, after ${seconds(step.took_ms / 1000)}`} ({step.user || "?"})
            {step.text && <span class="bad"> {step.text}</span>}
          </li>
        ))}
      </ol>
    </details>
  );
}

/** As they stand in the window: of a list, what is written. */
type Options = Record<string, string | boolean>;

/** What is asked for in the window; each option of the verb that has a field here. */
const CHECKS: Record<string, string> = {
  accept_unproven_fence: "Fence although the plan names what it cannot prove",
  accept_coupled: "Move topics although transactions write to others with them",
  end_hanging: "Abort the transactions that are open on the fenced topics",
  unverified: "Complete it without comparing what was switched",
  accept_loss: "What the plan names as lost is accepted",
  source_is_lost: "Fail over although the source answers",
  replay: "Write the records that only the source has to the target",
  leave_all: "Leave those for which nothing else is said",
  leave_extras: "Go on although the other cluster has records that neither flow wrote",
  off: "Turn the flow off, and leave the flow back as it is",
  force: "Turn it on although the flow back has not copied all: the rest stays where it is",
  verify_all: "Compare all records with their copies, not the last ones only",
};
const HOOKS: Record<string, string> = {
  hook_switch: "Hook that sends clients to the other cluster",
  hook_fence: "Hook that stops producers",
};
const LISTS: Record<string, string> = {
  topics: "Only these topics (separated by blanks)",
  groups: "Only these groups (separated by blanks)",
  leave_group: "Groups that stay (separated by blanks)",
  leave: "Leave the records of these topics on the source (separated by blanks)",
};
const TEXTS: Record<string, string> = {
  to: "Groups go on at: latest, safe, or a time",
  export_topic: "Write them to this topic of the target, with their origin",
};

const sent = (options: Options) =>
  Object.fromEntries(
    Object.entries(options).map(([name, value]) => [
      name,
      name in LISTS ? String(value).split(/\s+/).filter(Boolean) : value,
    ]),
  );

/** The window of a verb: first its options, then the plan as the worker tells it, and then it is confirmed. */
function Planned(props: { flow: string; verb: RecoveryVerb; hooks: string[]; who: Session; onClose: () => void }) {
  const { flow, verb, hooks, who } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const [options, setOptions] = useState<Options>({});
  const [plan, setPlan] = useState<RecoveryPlan | null>(null);
  const [reason, setReason] = useState("");
  const [error, setError] = useState("");
  const [isAsking, setAsking] = useState(false);
  useEffect(() => dialog.current?.showModal(), []);
  const path = `${flowPath(flow)}/dr/${verb.verb}`;
  const set = (name: string, value: string | boolean) => {
    setPlan(null);
    setOptions((before) => {
      const { [name]: _, ...others } = before;
      return value === "" || value === false ? others : { ...others, [name]: value };
    });
  };
  const call = async (how: object) => {
    setAsking(true);
    setError("");
    try {
      const answer = await ask("POST", path, { body: { ...how, options: sent(options) }, mostMs: PLAN_MOST_MS });
      return (await answer.json()) as RecoveryCalled;
    } catch (failed) {
      setError(whyNot(failed, who));
      return null;
    } finally {
      setAsking(false);
    }
  };
  const show = async () => setPlan((await call({ plan: true }))?.plan ?? null);
  const confirm = async () => {
    if (await call({ confirm: plan?.hash, reason })) dialog.current?.close();
    else setPlan(null); // what would be done has changed, or it did not begin: look again
  };
  return (
    <dialog
      ref={dialog}
      class="wide"
      aria-labelledby="verb"
      onCancel={(event) => isAsking && event.preventDefault()}
      onClose={props.onClose}
    >
      <h2 id="verb">
        {verb.verb} {flow}?
      </h2>
      <p>{verb.text}</p>
      <Fields options={options} names={verb.options} hooks={hooks} onSet={set} />
      {isAsking && !plan && <Waiting what="the plan" />}
      {plan && (
        <>
          <pre class="lines" role="region" tabIndex={0} aria-label="The plan">
            {plan.lines.join("\n")}
          </pre>
          {plan.why_not && <p class="note bad">{plan.why_not}</p>}
          {plan.may_begin && <Reason reason={reason} onReason={setReason} reader="journal and the audit" />}
          {plan.may_begin && <Copied name="curl" text={curlOf(who, path, { confirm: plan.hash, reason, options: sent(options) })} />}
          <Copied name="command" text={plan.command + because(reason)} />
        </>
      )}
      {error && (
        <p class="note bad" role="alert">
          {error}
        </p>
      )}
      <p class="verbs">
        {plan?.may_begin ? (
          <button type="button" class="strong" disabled={isAsking} onClick={() => void confirm()}>
            {plan.goes_on ? `go on with ${verb.verb}` : verb.verb}
          </button>
        ) : (
          <button type="button" class="strong" disabled={isAsking} onClick={() => void show()}>
            show the plan
          </button>
        )}
        <button type="button" disabled={isAsking} onClick={() => dialog.current?.close()}>
          cancel
        </button>
      </p>
    </dialog>
  );
}

function Fields(props: {
  options: Options;
  names: string[];
  hooks: string[];
  onSet: (name: string, value: string | boolean) => void;
}) {
  const { options, names, hooks, onSet } = props;
  return (
    <>
      {names.filter((name) => name in HOOKS).map((name) => (
        <label key={name}>
          {HOOKS[name]}{" "}
          <select value={String(options[name] ?? "")} onChange={(event) => onSet(name, event.currentTarget.value)}>
            <option value="">{name === "hook_switch" ? "none: by hand" : "none"}</option>
            {hooks.map((hook) => (
              <option key={hook} value={hook}>
                {hook}
              </option>
            ))}
          </select>
        </label>
      ))}
      {names.filter((name) => name in LISTS || name in TEXTS).map((name) => (
        <label key={name}>
          {LISTS[name] ?? TEXTS[name]}{" "}
          <input
            value={String(options[name] ?? "")}
            onInput={(event) => onSet(name, event.currentTarget.value)}
          />
        </label>
      ))}
      {names.filter((name) => name in CHECKS).map((name) => (
        <label key={name} class="agree">
          <input
            type="checkbox"
            checked={options[name] === true}
            onChange={(event) => onSet(name, event.currentTarget.checked)}
          />
          <span>{CHECKS[name]}</span>
        </label>
      ))}
    </>
  );
}

function curlOf(who: Session, path: string, body: object): string {
  const data = quoted(JSON.stringify(body));
  return `curl${userOfCurl(who)} -X POST -H 'Content-Type: application/json' -d ${data} ${quoted(location.origin + path)}`;
}
