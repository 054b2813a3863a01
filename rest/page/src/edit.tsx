// Changes of a flow's settings: written here, looked at as a difference, and stored in the place of the version that was
// looked at. If somebody else was quicker, nothing is stored, and the difference to the new version is shown.

import { useEffect, useRef, useState } from "preact/hooks";
import {
  type Answer,
  ApiError,
  ask,
  type Definition,
  flowPath,
  get,
  type PlannedSettings,
  type Session,
  type SettingBody,
  type SettingsBody,
} from "./api";
import { because, connectorPath, type Verb } from "./deeds";
import { plural, time } from "./format";
import { sleep, usePolled } from "./poll";
import { carryOut, Reason, Same, whyNot } from "./verbs";

/** By name; null: the setting is removed, and has its default again. */
export type Edits = Readonly<Record<string, string | null>>;

const NONE: Edits = {};
/** Of each flow, so that they are there when the view is opened again. */
const kept = new Map<string, Edits>();

export function useEdits(flow: string): [Edits, (edits: Edits) => void] {
  const [, setTimes] = useState(0);
  const set = (edits: Edits) => {
    kept.set(flow, edits);
    setTimes((times) => times + 1);
  };
  return [kept.get(flow) ?? NONE, set];
}

const NEWER_TRIES = 4;
const DAY_MS = 86_400_000;

/** Read the settings until they are another version than `than`: a worker may tell of what another one stored 2 s late. */
async function newer(flow: string, than: number): Promise<SettingsBody> {
  for (let tries = 1; ; tries += 1) {
    const { body }: Answer<SettingsBody> = await get<SettingsBody>(`${flowPath(flow)}/config`);
    if ((body.stored?.version ?? 0) !== than || tries === NEWER_TRIES) return body;
    await sleep(1000, new AbortController().signal);
  }
}

interface Plan {
  of: Edits;
  found: PlannedSettings;
}

export function Editor(props: {
  flow: string;
  settings: SettingBody[];
  edits: Edits;
  onEdits: (edits: Edits) => void;
  /** There are newer settings than those that are shown. */
  onNewer: (settings: SettingsBody) => void;
  who: Session;
}) {
  const { flow, settings, edits, onEdits, onNewer, who } = props;
  const [plan, setPlan] = useState<Plan | null>(null);
  const [reason, setReason] = useState("");
  const [isAsking, setAsking] = useState(false);
  const [problem, setProblem] = useState("");
  const [conflict, setConflict] = useState("");
  const [told, setTold] = useState("");
  const isShown = useRef(false); // a field that is added from now on takes the focus; those that were kept do not
  useEffect(() => void (isShown.current = true), []);
  const definitions = usePolled("definitions", DAY_MS, (signal) =>
    get<Definition[]>("/connector-plugins/MirrorSourceConnector/config", signal),
  );
  const known = new Map(definitions.value?.body.map((one) => [one.name, one]));
  const names = Object.keys(edits);
  const planned = plan && plan.of === edits ? plan.found : null;
  const choices = settings.filter((one) => one.may_change && !(one.name in edits));
  const edit = (name: string, value: string | null) => {
    setTold("");
    onEdits({ ...edits, [name]: value });
  };
  const undo = (name: string) => onEdits(Object.fromEntries(Object.entries(edits).filter(([one]) => one !== name)));
  const during = async (work: () => Promise<void>) => {
    setAsking(true);
    setProblem("");
    try {
      await work();
    } catch (failed) {
      setProblem(whyNot(failed, who));
    }
    setAsking(false);
  };
  const look = async () => {
    const answer = await ask("PUT", `${flowPath(flow)}/config/validate`, { body: edits });
    setPlan({ of: edits, found: (await answer.json()) as PlannedSettings });
  };
  const store = async (verb: Verb, version: number) => {
    setConflict("");
    try {
      await carryOut(verb, reason);
    } catch (failed) {
      if (!(failed instanceof ApiError) || ![409, 412].includes(failed.status)) throw failed;
      const now = await newer(flow, version);
      if ((now.stored?.version ?? 0) === version) throw failed; // it is refused for another reason
      setConflict(someoneElse(now));
      onNewer(now);
      await look();
      return;
    }
    setTold(
      `Version ${version + 1} is stored: ${names.join(", ")}. The workers follow within about two seconds. Their files keep what they say: write it there as well.`,
    );
    setPlan(null);
    setReason("");
    onEdits(NONE);
  };
  const isRight = planned && !planned.problem && !Object.keys(planned.errors).length && planned.changes.length > 0;
  const verb = planned && storing(flow, edits, planned.version);
  return (
    <section class="panel editor" aria-labelledby="edit">
      <h2 id="edit">Change settings of {flow}</h2>
      <p class="muted">
        All its workers share these. Addresses, credentials and settings of connections are each worker's own, in its file, and cannot be changed here.
      </p>
      {told && (
        <p class="note" role="status">
          {told}
        </p>
      )}
      {names.map((name) => (
        <Field
          key={name}
          name={name}
          setting={settings.find((one) => one.name === name)}
          definition={known.get(name)}
          value={edits[name] ?? null}
          error={planned?.errors[name] ?? ""}
          onValue={(value) => edit(name, value)}
          onUndo={() => undo(name)}
          takesFocus={isShown.current}
        />
      ))}
      <div class="filters">
        <label>
          Setting{" "}
          <select
            value=""
            onChange={(event) => {
              const one = choices.find((each) => each.name === event.currentTarget.value);
              if (one) edit(one.name, one.value ?? "");
            }}
          >
            <option value="">choose one to change or add …</option>
            {choices.map((one) => (
              <option key={one.name}>{one.name}</option>
            ))}
          </select>
        </label>
        {names.length > 0 && (
          <>
            <button type="button" class="strong" disabled={isAsking} onClick={() => void during(look)}>
              preview
            </button>
            <button type="button" disabled={isAsking} onClick={() => (setConflict(""), setProblem(""), onEdits(NONE))}>
              forget all
            </button>
          </>
        )}
      </div>
      {conflict && (
        <p class="note warn" role="alert">
          {conflict}
        </p>
      )}
      {problem && (
        <p class="note bad" role="alert">
          {problem}
        </p>
      )}
      {planned && <Difference planned={planned} flow={flow} settings={settings} known={known} />}
      {isRight && verb && (
        <>
          <Reason reason={reason} onReason={setReason} reader="history" />
          <Same verb={verb} reason={reason} who={who} />
          <p class="verbs">
            <button type="button" class="strong" disabled={isAsking} onClick={() => void during(() => store(verb, planned.version))}>
              store as version {planned.version + 1}
            </button>
          </p>
        </>
      )}
    </section>
  );
}

const storing = (flow: string, edits: Edits, version: number): Verb => ({
  name: "store",
  what: "",
  method: "PATCH",
  path: `${connectorPath(flow)}/config`,
  body: () => edits,
  headers: { "If-Match": `"${version}"` },
  command: (reason) => `mm2py apply FILE${because(reason)}`,
  ofCommand: "The command stores what FILE says of all its flows: write the change there before.",
});

function someoneElse({ stored }: SettingsBody): string {
  if (!stored) return "Nothing was stored: what was stored before is gone. Below is the difference to what counts now.";
  const who = `${stored.user || stored.by}${stored.host ? ` at ${stored.host}` : ""}`;
  const why = stored.reason ? ` (${stored.reason})` : "";
  return (
    `Nothing was stored: somebody else has changed the settings meanwhile. Version ${stored.version} is by ${who}, ${time(stored.at_ms)}${why}.` +
    " Below is the difference to what counts now."
  );
}

function Field(props: {
  name: string;
  setting: SettingBody | undefined;
  definition: Definition | undefined;
  value: string | null;
  error: string;
  onValue: (value: string | null) => void;
  onUndo: () => void;
  takesFocus: boolean;
}) {
  const { name, setting, definition, value, error, onValue } = props;
  const field = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (props.takesFocus) field.current?.querySelector<HTMLElement>("input, select, textarea")?.focus();
  }, []);
  const told = `about-${name}`;
  const more = { id: `value-${name}`, "aria-describedby": told, "aria-invalid": !!error };
  const byDefault = setting?.default ?? null;
  return (
    <div class="field" ref={field}>
      <label for={more.id}>
        <code>{name}</code>
      </label>
      {value === null ? (
        <p>
          is removed, and has its default: <code>{byDefault ?? "none"}</code>
        </p>
      ) : definition?.type === "BOOLEAN" ? (
        <select {...more} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
          {!["true", "false"].includes(value) && <option>{value}</option>}
          <option>true</option>
          <option>false</option>
        </select>
      ) : definition?.type === "LIST" ? (
        <textarea {...more} rows={2} value={value} onInput={(event) => onValue(event.currentTarget.value.replace(/\s*\n\s*/g, " "))} />
      ) : (
        <input {...more} value={value} onInput={(event) => onValue(event.currentTarget.value)} />
      )}
      {error && (
        <p class="bad" role="alert">
          {name}: {error}
        </p>
      )}
      <p id={told} class="muted">
        {definition?.documentation} Now: <code>{setting?.value ?? "none"}</code> ({setting?.origin ?? "not known"}). Default: <code>{byDefault ?? "none"}</code>.{" "}
        {setting && (setting.in_place ? "Copying goes on during a change." : "The flow restarts for it.")}
      </p>
      <p class="verbs">
        {value === null ? (
          <button type="button" onClick={() => onValue(setting?.value ?? "")}>
            keep it
          </button>
        ) : (
          <button type="button" onClick={() => onValue(null)}>
            remove it
          </button>
        )}
        <button type="button" aria-label={`undo the change of ${name}`} onClick={props.onUndo}>
          undo
        </button>
      </p>
    </div>
  );
}

function Difference(props: {
  planned: PlannedSettings;
  flow: string;
  settings: SettingBody[];
  known: Map<string, Definition>;
}) {
  const { planned, flow, settings, known } = props;
  const wrong = Object.keys(planned.errors);
  const restarts = planned.changes.filter((one) => !one.in_place).map((one) => one.name);
  const defaultOf = (name: string) => settings.find((one) => one.name === name)?.default ?? null;
  const others = wrong.filter((name) => !settings.some((one) => one.name === name));
  return (
    <div role="status">
      <h3>What would change in version {planned.version}</h3>
      {!planned.changes.length && !wrong.length && <p class="note">Nothing: these values mean the same as before.</p>}
      <ul class="difference">
        {planned.changes.map((one) => (
          <li key={one.name}>
            <code>{one.name}</code>: <Values old={one.old ?? defaultOf(one.name)} now={one.new ?? defaultOf(one.name)} isList={known.get(one.name)?.type === "LIST"} />
            {one.new === null && " (its default)"}
            <br />
            <span class={one.in_place ? "muted" : "warn"}>
              {!one.concerns.length
                ? "It does nothing yet."
                : one.in_place
                  ? `Copying goes on. It concerns ${one.concerns.join("; ")}.`
                  : `The flow is drained and restarts. It concerns ${one.concerns.join("; ")}.`}
            </span>
          </li>
        ))}
      </ul>
      {wrong.length > 0 && <p class="note bad">{plural(wrong.length, "setting")} refused: {wrong.join(", ")}. Nothing can be stored until that is mended.</p>}
      {others.map((name) => (
        <p key={name} class="note bad">
          {name}: {planned.errors[name]}
        </p>
      ))}
      {planned.problem && <p class="note bad">{planned.problem} Nothing can be stored until that is mended.</p>}
      {planned.without_effect.length > 0 && <p class="note warn">Without effect in mm2py: {planned.without_effect.join(", ")}.</p>}
      {restarts.length > 0 && (
        <p class="note warn">
          {flow} is drained and restarts for {restarts.join(", ")}: for some seconds nothing of it is copied, and nothing is copied twice.
        </p>
      )}
    </div>
  );
}

const entriesOf = (value: string | null) => (value === null ? [] : value.split(",").map((one) => one.trim())).filter(Boolean);

/** From and to; of a list the entries that come and go. */
function Values({ old, now, isList }: { old: string | null; now: string | null; isList: boolean }) {
  if (!isList) {
    return (
      <>
        <del>{old ?? "none"}</del> → <ins>{now ?? "none"}</ins>
      </>
    );
  }
  const [before, after] = [entriesOf(old), entriesOf(now)];
  const gone = before.filter((one) => !after.includes(one));
  const come = after.filter((one) => !before.includes(one));
  const stay = after.length - come.length;
  return (
    <>
      {gone.map((one) => (
        <>
          <del key={`-${one}`}>−{one}</del>{" "}
        </>
      ))}
      {come.map((one) => (
        <>
          <ins key={`+${one}`}>+{one}</ins>{" "}
        </>
      ))}
      {stay > 0 && <span class="muted">{stay === 1 ? "1 entry stays" : `${stay} entries stay`}</span>}
    </>
  );
}
