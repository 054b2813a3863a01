// What an operator may do: each verb says what will happen, and how to do the same by curl or by a command.

import { createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, ask, flowPath, type FlowBody, type Session, type TopicBody } from "./api";
import { session } from "./poll";

/** Who is logged in. */
export const Who = createContext<Session | null>(null);
const VERB_MOST_MS = 60_000;
const OUTCOME_SHOWN_MS = 30_000;

/** What is to be confirmed. */
export interface Wanted {
  verb: Verb;
  /** What it is done to. */
  of: string;
  who: Session;
}
/** Opens the window that asks for confirmation. It is above all views, so that it stays whatever they show meanwhile. */
export const Asking = createContext<(wanted: Wanted) => void>(() => {});

export interface Verb {
  name: string;
  /** What will happen, in sentences. */
  what: string;
  method: "PUT" | "POST";
  path: string;
  /** The command that does the same; null: there is none. */
  command: ((reason: string) => string) | null;
}

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
const because = (reason: string) => (reason ? ` --reason ${quoted(reason)}` : "");

export function verbsOfTopic(flow: string, topic: TopicBody): Verb[] {
  const path = `${flowPath(flow)}/topics/${encodeURIComponent(topic.topic)}`;
  const command = (name: string) => (reason: string) =>
    `mm2py ${name} FILE ${quoted(flow)} --topic ${quoted(topic.topic)}${because(reason)}`;
  const pause: Verb = {
    name: "pause",
    what:
      `Workers stop reading ${topic.topic} of ${flow} within about a second, with all its partitions and those that are added later.` +
      " It stays paused, whatever happens to workers, until someone resumes it, and the flow is not safe to fail over until then." +
      " Records that the source deletes meanwhile are a gap.",
    method: "PUT",
    path: `${path}/pause`,
    command: command("pause"),
  };
  const resume: Verb = {
    name: "resume",
    what: `${topic.topic} of ${flow} goes on behind its last record, with those of its partitions that are paused alone.`,
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
  };
  const isPaused = topic.not_copied.some((one) => one.reason === "paused");
  return [isPaused ? resume : pause, restart];
}

export function verbsOfFlow(flow: FlowBody): Verb[] {
  const path = `/connectors/${encodeURIComponent(`${flow.flow}.MirrorSourceConnector`)}`;
  const command = (name: string) => (reason: string) => `mm2py ${name} FILE ${quoted(flow.flow)}${because(reason)}`;
  const resume: Verb = {
    name: "resume",
    what: `${flow.flow} goes on: each partition behind its last record.`,
    method: "PUT",
    path: `${path}/resume`,
    command: command("resume"),
  };
  const pause: Verb = {
    name: "pause",
    what:
      `All workers drain ${flow.flow} within about two seconds, and nothing of it is copied until someone resumes it, also after restarts.` +
      " Records that the source deletes meanwhile are a gap.",
    method: "PUT",
    path: `${path}/pause`,
    command: command("pause"),
  };
  const restart: Verb = {
    name: "restart",
    what: `Each worker drains ${flow.flow} and starts it again, once. Nothing is repeated.`,
    method: "POST",
    path: `${path}/restart?includeTasks=true`,
    command: null,
  };
  if (flow.state === "held") return [resume];
  return flow.state === "running" ? [pause, restart] : [];
}

export function Verbs({ verbs, of }: { verbs: Verb[]; of: string }) {
  const who = useContext(Who);
  const open = useContext(Asking);
  if (!who || !["operator", "admin"].includes(who.role) || !verbs.length) return null;
  return (
    <div class="verbs">
      {verbs.map((verb) => (
        <button key={verb.name} type="button" aria-label={`${verb.name} ${of}`} onClick={() => open({ verb, of, who })}>
          {verb.name} …
        </button>
      ))}
    </div>
  );
}

/** What came of the last verb. */
export function Outcome({ told, onOver }: { told: string; onOver: () => void }) {
  useEffect(() => {
    if (!told) return;
    const timer = setTimeout(onOver, OUTCOME_SHOWN_MS);
    return () => clearTimeout(timer);
  }, [told]);
  return (
    <p role="status" class={told ? "note outcome" : "hidden"}>
      {told}
    </p>
  );
}

/** `onTold` may come after `onClose`: a browser may close the window although the worker has not answered yet. */
export function Confirm(props: { wanted: Wanted; onClose: () => void; onTold: (told: string) => void }) {
  const { verb, of, who } = props.wanted;
  const user = who.login === "token" ? "mm2py" : who.user;
  const dialog = useRef<HTMLDialogElement>(null);
  const [reason, setReason] = useState("");
  const [error, setError] = useState("");
  const [isAsking, setAsking] = useState(false);
  useEffect(() => dialog.current?.showModal(), []);
  const query = reason ? `${verb.path.includes("?") ? "&" : "?"}reason=${encodeURIComponent(reason)}` : "";
  const path = verb.path + query;
  const confirm = async () => {
    setAsking(true);
    try {
      await ask(verb.method, path, {}, undefined, VERB_MOST_MS);
      props.onTold(`${verb.name} ${of}: stored; the workers follow within about two seconds.`);
      dialog.current?.close(); // and the focus goes back to the button
    } catch (failed) {
      const why = whyNot(failed, who);
      if (dialog.current?.open) setError(why);
      else props.onTold(`${verb.name} ${of}: ${why}`);
      setAsking(false);
    }
  };
  return (
    <dialog
      ref={dialog}
      aria-labelledby="verb"
      onCancel={(event) => isAsking && event.preventDefault()}
      onClose={props.onClose}
    >
      <h2 id="verb">
        {verb.name} {of}?
      </h2>
      <p>{verb.what}</p>
      <label>
        Reason, for those who read the history{" "}
        <input value={reason} maxLength={200} onInput={(event) => setReason(event.currentTarget.value)} />
      </label>
      {/* curl asks for the password itself, so that it is not among its arguments */}
      <Copied name="curl" text={`curl -u ${quoted(user)} -X ${verb.method} ${quoted(location.origin + path)}`} />
      {verb.command && <Copied name="command" text={verb.command(reason)} />}
      {error && (
        <p class="note bad" role="alert">
          {error}
        </p>
      )}
      <p class="verbs">
        <button type="button" class="strong" disabled={isAsking} onClick={() => void confirm()}>
          {verb.name}
        </button>
        <button type="button" disabled={isAsking} onClick={() => dialog.current?.close()}>
          cancel
        </button>
      </p>
    </dialog>
  );
}

function whyNot(failed: unknown, who: Session): string {
  if (!(failed instanceof ApiError)) return String(failed);
  if (failed.status === 401) {
    session.lost();
    const again = who.login === "token" ? "Open the address that mm2py open FILE prints." : "Log in again.";
    return `${failed.message} ${again}`;
  }
  return failed.status ? failed.message : `${failed.message} It may have been done all the same: look at Events.`;
}

function Copied({ name, text }: { name: string; text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return (
    <p class="copied">
      <code>{text}</code>{" "}
      {/* browsers have no clipboard for pages without TLS that other machines serve: then the text can be selected */}
      {"clipboard" in navigator && navigator.clipboard && (
        <button type="button" onClick={() => void copy()}>
          {isCopied ? "copied" : `copy as ${name}`}
        </button>
      )}
    </p>
  );
}
