// Reaches every view, flow, topic, group and setting: press / and type.

import { useEffect, useRef, useState } from "preact/hooks";
import { type FlowBody, flowPath, get, getAll, type SettingsBody, type TopicBody } from "./api";
import { type Address, at, go, VIEWS, write } from "./address";
import { count } from "./format";
import { readGroups } from "./groups";

const SHOWN_MOST = 12;
const FRESH_MS = 30_000;

interface Found {
  text: string;
  kind: string;
  to: Address;
}

/** How well a name fits, less is better; null: it does not. */
export function fit(name: string, wanted: string): number | null {
  const index = name.toLowerCase().indexOf(wanted.toLowerCase());
  return index < 0 ? null : index === 0 ? name.length : 1000 + index + name.length;
}

export function Search({ flows }: { flows: FlowBody[] }) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [chosen, setChosen] = useState(0);
  const [names, setNames] = useState<Found[]>([]);
  const [unread, setUnread] = useState<string[]>([]);
  const readAt = useRef(0);
  const isKnown = flows.some((one) => one.verdict);

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const inField = (event.target as Element).closest?.("input, select, textarea");
      if (event.key !== "/" || inField || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      input.current?.focus();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);

  const readNames = async () => {
    if (!isKnown || Date.now() - readAt.current < FRESH_MS) return;
    readAt.current = Date.now();
    const failed: string[] = [];
    const all = await Promise.all(
      flows
        .filter((one) => one.verdict)
        .flatMap(({ flow }) =>
          [topicsOf, groupsOf, settingsOf].map(async (namesOf) => {
            try {
              return await namesOf(flow);
            } catch {
              failed.push(`${KINDS.get(namesOf)} of ${flow}`);
              return [];
            }
          }),
        ),
    );
    setNames(all.flat());
    setUnread(failed);
    if (failed.length) readAt.current = 0;
  };

  // who comes here before the flows are known finds their topics a moment later
  useEffect(() => {
    if (isOpen && isKnown) void readNames();
  }, [isOpen, isKnown]);

  const all = text ? find(text, flows, names) : [];
  const found = all.slice(0, SHOWN_MOST);
  const current = found[Math.min(chosen, found.length - 1)];
  const take = (one: Found) => {
    go(one.to);
    setText("");
    setOpen(false);
    input.current?.blur();
  };
  return (
    <div class="search" role="search">
      <input
        ref={input}
        role="combobox"
        aria-label="Search topics, groups, settings, flows and views; press / to come here"
        aria-expanded={isOpen && found.length > 0}
        aria-controls="found"
        {...(isOpen && current ? { "aria-activedescendant": `found-${found.indexOf(current)}` } : {})}
        aria-autocomplete="list"
        placeholder="Search  /"
        value={text}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
          setOpen(true);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setChosen(Math.min(chosen + 1, found.length - 1));
          else if (event.key === "ArrowUp") setChosen(Math.max(chosen - 1, 0));
          else if (event.key === "Enter" && current) take(current);
          else if (event.key === "Escape") (setText(""), input.current?.blur());
          else return;
          event.preventDefault();
        }}
      />
      <ul id="found" role="listbox" aria-label="Found" hidden={!isOpen || !text}>
        {found.map((one, index) => (
          <li
            key={write(one.to)}
            id={`found-${index}`}
            role="option"
            aria-selected={one === current}
            onMouseDown={(event) => (event.preventDefault(), take(one))}
          >
            {one.text} <span class="muted">{one.kind}</span>
          </li>
        ))}
        {all.length > found.length && (
          <li role="option" aria-disabled="true" aria-selected="false" class="muted">
            {found.length} of {count(all.length)} that fit: type more of the name.
          </li>
        )}
        {!found.length && (
          <li role="option" aria-disabled="true" aria-selected="false" class="muted">
            {unread.length ? `Nothing found. Not known: ${unread.join(", ")}.` : "Nothing found."}
          </li>
        )}
      </ul>
    </div>
  );
}

const never = () => new AbortController().signal;

async function topicsOf(flow: string): Promise<Found[]> {
  const { body } = await getAll<TopicBody>(`${flowPath(flow)}/topics`, never());
  return body.map(({ topic }) => ({ text: topic, kind: `topic of ${flow}`, to: at({ view: "topics", flow, topic }) }));
}

async function groupsOf(flow: string): Promise<Found[]> {
  const { groups } = await readGroups(`${flowPath(flow)}/groups`, never());
  return groups.map(({ group }) => ({ text: group, kind: `group of ${flow}`, to: at({ view: "groups", flow, group }) }));
}

async function settingsOf(flow: string): Promise<Found[]> {
  const { body } = await get<SettingsBody>(`${flowPath(flow)}/config`);
  return body.settings.map(({ name }) => ({
    text: name,
    kind: `setting of ${flow}`,
    to: at({ view: "settings", flow, q: name, show: "all" }),
  }));
}

const KINDS = new Map([
  [topicsOf, "topics"],
  [groupsOf, "groups"],
  [settingsOf, "settings"],
]);

function find(text: string, flows: FlowBody[], names: Found[]): Found[] {
  const all: Found[] = [
    ...flows.map(({ flow }) => ({ text: flow, kind: "flow", to: at({ view: "topics", flow }) })),
    ...VIEWS.map((view) => ({ text: view, kind: "view", to: at({ view }) })),
    ...names,
  ];
  return all
    .map((one) => [fit(one.text, text), one] as const)
    .filter((one): one is readonly [number, Found] => one[0] !== null)
    .sort(([a], [b]) => a - b)
    .map(([, one]) => one);
}
