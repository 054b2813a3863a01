import { render } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { type Answer, ApiError, type ClusterBody, type FlowBody, get, getAll, logInOnce, logOut, type Session } from "./api";
import { at, OF_A_FLOW, onClick, useAddress, VIEWS, write } from "./address";
import { EventsView } from "./events";
import { FlowsView } from "./flows";
import { time } from "./format";
import { GapsView } from "./gaps";
import { GroupsView } from "./groups";
import { LoginView } from "./login";
import { useStale } from "./parts";
import { type Polled, session as ofPolls, usePolled } from "./poll";
import { RecoveryView } from "./recovery";
import { Search } from "./search";
import { note } from "./seen";
import { SettingsView } from "./settings";
import { toneOf, worstFirst } from "./state";
import { type Events, useEvents, useHistories } from "./stream";
import { TopicsView } from "./topics";
import { Asking, Confirm, Outcome, type Wanted, Who } from "./verbs";
import { WorkersView } from "./workers";
import "./style.css";

const FLOWS_EVERY_MS = 2000;
const WHO_EVERY_MS = 60_000;

/** For users of some flows, who may have been sent the address. */
const NOT_SEEN: Events = { events: [], error: new ApiError(403, "They are of all flows."), isOpen: false, unread: "" };

/**
 * Take the code of `mm2py open` out of the address, so that nobody copies it, and log in with it.
 *
 * Returns why that failed; null: there is no code.
 */
async function openOnce(): Promise<string | null> {
  const code = new URLSearchParams(location.hash.slice(1)).get("once");
  if (code === null) return null;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await logInOnce(code);
    return "";
  } catch (error) {
    return error instanceof ApiError ? error.message : String(error);
  }
}

function App() {
  const [session, setSession] = useState<Session | null>(null);
  const [problem, setProblem] = useState("");
  const [silence, setSilence] = useState("");
  const [isUnknown, setUnknown] = useState(true);
  const [wanted, setWanted] = useState<Wanted | null>(null);
  const [told, setTold] = useState("");
  const retry = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  /** Ask who is logged in. Returns whether anyone is; null: there is no answer yet. */
  const whoAmI = useCallback(async (): Promise<boolean | null> => {
    clearTimeout(retry.current);
    try {
      setSession((await get<Session>("/session")).body);
    } catch (error) {
      const failed = error instanceof ApiError ? error : new ApiError(0, String(error));
      if (failed.status !== 401) {
        setSilence(failed.message);
        retry.current = setTimeout(() => void whoAmI(), 3000);
        return null;
      }
      setSession(null);
      setUnknown(false);
      return false;
    }
    setSilence("");
    setUnknown(false);
    return true;
  }, []);
  useEffect(() => {
    ofPolls.lost = () => void whoAmI();
    const open = () =>
      void openOnce().then((failed) => {
        if (failed !== null) setProblem(failed);
        return whoAmI();
      });
    open();
    addEventListener("hashchange", open);
    // without a users' file the end of a session refuses nothing that the page asks for
    const look = () => document.visibilityState === "visible" && void whoAmI();
    document.addEventListener("visibilitychange", look);
    const timer = setInterval(look, WHO_EVERY_MS);
    return () => {
      removeEventListener("hashchange", open);
      document.removeEventListener("visibilitychange", look);
      clearInterval(timer);
    };
  }, [whoAmI]);
  if (isUnknown) return <main class="login">{silence ? `${silence} The page asks again by itself.` : ""}</main>;
  const logIn = async () => {
    setProblem("");
    return whoAmI();
  };
  return (
    <Asking.Provider value={(one) => (setTold(""), setWanted(one))}>
      {session ? (
        <Signed
          key={session.user}
          session={session}
          problem={problem}
          onLogOut={() => void logOut().catch(() => {}).then(whoAmI)}
        />
      ) : (
        <LoginView problem={problem} onDone={logIn} />
      )}
      {wanted && <Confirm wanted={wanted} onClose={() => setWanted(null)} onTold={setTold} />}
      <Outcome told={told} onOver={() => setTold("")} />
    </Asking.Provider>
  );
}

function Signed({ session, problem, onLogOut }: { session: Session; problem: string; onLogOut: () => void }) {
  const address = useAddress();
  const seesAll = session.flows === null;
  const flows = usePolled("flows", FLOWS_EVERY_MS, async (signal) => {
    const found = await getAll<FlowBody>("/v1/flows", signal);
    const atMs = Date.now();
    for (const one of found.body) {
      const records = one.lag_is_partial ? null : one.lag_records;
      const seconds = one.verdict?.readiness === "unknown" ? null : (one.verdict?.behind_s ?? null);
      note(`flow ${one.flow}`, { atMs, records, seconds }, FLOWS_EVERY_MS);
    }
    return found;
  });
  const clusters = usePolled(seesAll && address.view === "flows" ? "clusters" : null, 2000, (signal) =>
    getAll<ClusterBody>("/v1/clusters", signal),
  );
  const isOfEvents = seesAll && (address.view === "flows" || address.view === "events");
  const streamed = useEvents(isOfEvents);
  const names = (flows.value?.body ?? []).filter((one) => one.verdict).map((one) => one.flow);
  const events = useHistories(isOfEvents ? names : [], streamed);
  const known = flows.value?.body ?? [];
  // a link names the flow, so that the view stays with it whatever becomes of the others
  const worst = worstFirst(known.filter((one) => one.verdict))[0]?.flow ?? "";
  return (
    <Who.Provider value={session}>
      <a class="skip" href="#content">
        To the content
      </a>
      <header>
        <nav aria-label="Views">
          {VIEWS.filter((view) => seesAll || view === "flows" || OF_A_FLOW.includes(view)).map((view) => (
            <a
              key={view}
              href={write(at({ view, flow: OF_A_FLOW.includes(view) ? address.flow || worst : "" }))}
              {...(view === address.view ? { "aria-current": "page" as const } : {})}
            >
              {view}
            </a>
          ))}
        </nav>
        <Search flows={known} />
        <span class="who">
          <AsOf of={flows} />{" "}
          <span title={`role ${session.role}`}>
            {session.user} ({session.role})
          </span>{" "}
          {session.login === "token" && !session.is_session && (
            <span class="muted">to change anything: mm2py open FILE</span>
          )}
          {session.is_session && (
            <button type="button" class="plain" onClick={onLogOut}>
              log out
            </button>
          )}
        </span>
      </header>
      <main id="content" tabIndex={-1}>
        {problem && (
          <p class="note bad" role="alert">
            {problem}
          </p>
        )}
        {address.view === "flows" && <FlowsView address={address} known={{ flows, clusters, events: seesAll ? events : null }} />}
        {address.view === "topics" && <TopicsView address={address} flows={flows} />}
        {address.view === "groups" && <GroupsView address={address} flows={flows} />}
        {address.view === "gaps" && <GapsView address={address} flows={flows} />}
        {address.view === "recovery" && <RecoveryView address={address} flows={flows} />}
        {address.view === "settings" && <SettingsView address={address} flows={flows} />}
        {address.view === "workers" && <WorkersView address={address} flows={flows} />}
        {address.view === "events" && <EventsView address={address} events={seesAll ? events : NOT_SEEN} />}
      </main>
      <Title of={flows} />
      <Spoken flows={known} />
    </Who.Provider>
  );
}

/** The title of the tab: how many flows are not well, as far as that is known now. */
function Title({ of }: { of: Polled<Answer<FlowBody[]>> }) {
  const bad = of.value?.body.filter((one) => ["bad", "warn"].includes(toneOf(one)[1])).length;
  const isStale = useStale(of, of.value?.ageS ?? null);
  useEffect(() => {
    const tell = () => {
      const isHidden = document.visibilityState === "hidden"; // then nothing is asked
      document.title = isHidden || isStale ? "mm2py (not watched)" : bad ? `(${bad}) mm2py` : "mm2py";
    };
    tell();
    document.addEventListener("visibilitychange", tell);
    return () => {
      document.removeEventListener("visibilitychange", tell);
      document.title = "mm2py (not watched)"; // nobody is logged in any more
    };
  }, [bad, isStale]);
  return null;
}

function AsOf({ of }: { of: Polled<Answer<unknown>> }) {
  const isStale = useStale(of, of.value?.ageS ?? null);
  if (!of.value) return null;
  return <span class={isStale ? "warn" : "muted"}>as of {time(of.value.lookedAtMs ?? of.atMs)}</span>;
}

/** Tells a screen reader when a flow becomes better or worse, and nothing else. */
function Spoken({ flows }: { flows: FlowBody[] }) {
  const before = useRef(new Map<string, string>());
  const [text, setText] = useState("");
  useEffect(() => {
    const changed: string[] = [];
    for (const flow of flows) {
      const [word] = toneOf(flow);
      const last = before.current.get(flow.flow);
      if (last !== undefined && last !== word) changed.push(`${flow.flow}: ${word}.`);
      before.current.set(flow.flow, word);
    }
    if (changed.length) setText(changed.join(" "));
  }, [flows]);
  return (
    <p class="hidden" role="status">
      {text}
    </p>
  );
}

document.addEventListener("click", onClick);
const root = document.getElementById("page");
if (root) render(<App />, root);
