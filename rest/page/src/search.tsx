// Reaches every view, flow and topic: press / and type.

import { useEffect, useRef, useState } from "preact/hooks";
import { type FlowBody, flowPath, getAll, type TopicBody } from "./api";
import { type Address, at, go, VIEWS, write } from "./address";

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
  const [topics, setTopics] = useState<{ flow: string; topic: string }[]>([]);
  const [unread, setUnread] = useState<string[]>([]);
  const readAt = useRef(0);

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

  const readTopics = async () => {
    if (Date.now() - readAt.current < FRESH_MS) return;
    readAt.current = Date.now();
    const { signal } = new AbortController();
    const failed: string[] = [];
    const all = await Promise.all(
      flows
        .filter((one) => one.verdict)
        .map(async ({ flow }) => {
          try {
            const found = await getAll<TopicBody>(`${flowPath(flow)}/topics`, signal);
            return found.body.map((one) => ({ flow, topic: one.topic }));
          } catch {
            failed.push(flow);
            return [];
          }
        }),
    );
    setTopics(all.flat());
    setUnread(failed);
    if (failed.length) readAt.current = 0;
  };

  const found = text ? find(text, flows, topics) : [];
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
        aria-label="Search topics, flows and views; press / to come here"
        aria-expanded={isOpen && found.length > 0}
        aria-controls="found"
        {...(isOpen && current ? { "aria-activedescendant": `found-${found.indexOf(current)}` } : {})}
        aria-autocomplete="list"
        placeholder="Search  /"
        value={text}
        onFocus={() => {
          setOpen(true);
          void readTopics();
        }}
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
        {!found.length && (
          <li role="option" aria-disabled="true" aria-selected="false" class="muted">
            {unread.length ? `Nothing found; the topics of ${unread.join(", ")} are not known.` : "Nothing found."}
          </li>
        )}
      </ul>
    </div>
  );
}

function find(text: string, flows: FlowBody[], topics: { flow: string; topic: string }[]): Found[] {
  const all: Found[] = [
    ...flows.map(({ flow }) => ({ text: flow, kind: "flow", to: at({ view: "topics", flow }) })),
    ...VIEWS.map((view) => ({ text: view, kind: "view", to: at({ view }) })),
    ...topics.map(({ flow, topic }) => ({ text: topic, kind: `topic of ${flow}`, to: at({ view: "topics", flow, topic }) })),
  ];
  return all
    .map((one) => [fit(one.text, text), one] as const)
    .filter((one): one is readonly [number, Found] => one[0] !== null)
    .sort(([a], [b]) => a - b)
    .slice(0, SHOWN_MOST)
    .map(([, one]) => one);
}
