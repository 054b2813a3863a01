// The buttons of what an operator may do, and the window that says what will happen and asks for confirmation.

import { createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, ask, type Session } from "./api";
import { quoted, type Verb } from "./deeds";
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

const ROLES = ["reader", "operator", "admin"];

/** Who is logged in, if that is a role that may; else null. */
export function useMay(role: "operator" | "admin"): Session | null {
  const who = useContext(Who);
  return who && ROLES.indexOf(who.role) >= ROLES.indexOf(role) ? who : null;
}

/** Whether who is logged in sees all flows, and so workers, clusters and events. */
export const useSeesAll = (): boolean => useContext(Who)?.flows === null;

export function Verbs({ verbs, of, inRow = false }: { verbs: Verb[]; of: string; inRow?: boolean }) {
  const who = useMay("operator");
  const open = useContext(Asking);
  if (!who || !verbs.length) return null;
  return (
    <div class={inRow ? "verbs row" : "verbs"}>
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
  const dialog = useRef<HTMLDialogElement>(null);
  const [reason, setReason] = useState("");
  const [error, setError] = useState("");
  const [isAsking, setAsking] = useState(false);
  const [isAgreed, setAgreed] = useState(!verb.agree);
  useEffect(() => dialog.current?.showModal(), []);
  const confirm = async () => {
    setAsking(true);
    try {
      const told = await carryOut(verb, reason);
      props.onTold(`${verb.name} ${of}: ${told}`);
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
      {verb.agree && (
        <label class="agree">
          <input type="checkbox" checked={isAgreed} onChange={(event) => setAgreed(event.currentTarget.checked)} />
          <span>{verb.agree}</span>
        </label>
      )}
      {verb.notHere ? (
        <p class="note warn">{verb.notHere}</p>
      ) : (
        <Reason reason={reason} onReason={setReason} reader={verb.isAudited ? "audit" : "history"} />
      )}
      <Same verb={verb} reason={reason} who={who} />
      {error && (
        <p class="note bad" role="alert">
          {error}
        </p>
      )}
      <p class="verbs">
        {!verb.notHere && (
          <button type="button" class="strong" disabled={isAsking || !isAgreed} onClick={() => void confirm()}>
            {verb.name}
          </button>
        )}
        <button type="button" disabled={isAsking} onClick={() => dialog.current?.close()}>
          cancel
        </button>
      </p>
    </dialog>
  );
}

export const Reason = (props: { reason: string; onReason: (reason: string) => void; reader: string }) => (
  <label>
    Reason, for those who read the {props.reader}{" "}
    <input value={props.reason} maxLength={200} onInput={(event) => props.onReason(event.currentTarget.value)} />
  </label>
);

/** curl asks for the password itself, so that it is not among its arguments. */
export const userOfCurl = (who: Session) =>
  who.login === "none" ? "" : ` -u ${quoted(who.login === "token" ? "mm2py" : who.user)}`;

/** How to do the same by curl, and by a command where there is one. */
export function Same({ verb, reason, who }: { verb: Verb; reason: string; who: Session }) {
  const user = userOfCurl(who);
  const body = verb.body?.(reason);
  const headers = { ...(body ? { "Content-Type": "application/json" } : {}), ...verb.headers };
  const more = Object.entries(headers).map(([name, value]) => ` -H ${quoted(`${name}: ${value}`)}`);
  const curl = `curl${user} -X ${verb.method}${more.join("")}${body ? ` -d ${quoted(JSON.stringify(body))}` : ""}`;
  return (
    <>
      {!verb.notHere && <Copied name="curl" text={`${curl} ${quoted(location.origin + pathOf(verb, reason))}`} />}
      {verb.command && <Copied name="command" text={verb.command(reason)} />}
      {verb.ofCommand && <p class="muted">{verb.ofCommand}</p>}
    </>
  );
}

function pathOf(verb: Verb, reason: string): string {
  if (!reason || verb.isAudited) return verb.path;
  return `${verb.path}${verb.path.includes("?") ? "&" : "?"}reason=${encodeURIComponent(reason)}`;
}

/** Returns what came of it, in a sentence. Throws: as `ask`. */
export async function carryOut(verb: Verb, reason: string): Promise<string> {
  const body = verb.body?.(reason);
  const answer = await ask(verb.method, pathOf(verb, reason), {
    ...(body ? { body } : {}),
    ...(verb.headers ? { headers: verb.headers } : {}),
    mostMs: VERB_MOST_MS,
  });
  const told = (await answer.json().catch(() => ({}))) as { message?: string };
  return told.message ?? "stored; the workers follow within about two seconds.";
}

export function whyNot(failed: unknown, who: Session): string {
  if (!(failed instanceof ApiError)) return String(failed);
  if (failed.status === 401) {
    session.lost();
    const again = who.login === "token" ? "Open the address that mm2py open FILE prints." : "Log in again.";
    return `${failed.message} ${again}`;
  }
  const isKnown = failed.status > 0 && failed.status < 500;
  return isKnown ? failed.message : `${failed.message} It may have been done all the same: look at Events.`;
}

export function Copied({ name, text }: { name: string; text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  useEffect(() => setCopied(false), [text]);
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
