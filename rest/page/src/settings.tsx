// Each setting of a flow with its value, and where the value comes from; admins change them here.

import { useState } from "preact/hooks";
import { type Answer, type FlowBody, flowPath, get, type SettingBody, type SettingsBody } from "./api";
import { type Address, go } from "./address";
import { FlowChoice, flowOf } from "./choice";
import { count, plural, time } from "./format";
import { Editor, type Edits, useEdits } from "./edit";
import { Freshness, Waiting } from "./parts";
import { type Polled, usePolled } from "./poll";
import { type Column, Rows } from "./rows";
import { useMay } from "./verbs";

const origin = (one: SettingBody) =>
  one.origin === "file" && one.file ? `file${one.file.line === null ? "" : `, line ${one.file.line}`}` : one.origin;

const versionOf = (body: SettingsBody) => body.stored?.version ?? 0;

export function SettingsView({ address, flows }: { address: Address; flows: Polled<Answer<FlowBody[]>> }) {
  const known = flows.value?.body ?? [];
  const flow = flowOf(address, known);
  const path = flow ? `${flowPath(flow)}/config` : null;
  const settings = usePolled(path, 10_000, (signal) => get<SettingsBody>(path ?? "", signal));
  const [newer, setNewer] = useState<SettingsBody | null>(null); // of the flow that is shown, or of another one
  const polled = settings.value?.body;
  const body = polled && newer?.flow === flow && versionOf(newer) > versionOf(polled) ? newer : polled;
  return (
    <>
      <h1>
        <FlowChoice address={address} flow={flow} flows={known} /> settings
      </h1>
      {flow && <Freshness of={settings} what={`the settings of ${flow}`} />}
      {flow && !body && !settings.error && <Waiting what={`the settings of ${flow}`} />}
      {body && (
        <>
          <p class="muted">
            {body.stored
              ? `Version ${count(body.stored.version)} is stored, by ${body.stored.user || body.stored.by}` +
                `${body.stored.host ? ` at ${body.stored.host}` : ""}, ${time(body.stored.at_ms)}` +
                `${body.stored.reason ? `: ${body.stored.reason}` : ""}`
              : "Nothing is stored: each worker runs by its own file."}
          </p>
          <Editable key={flow} address={address} flow={flow} settings={body.settings} onNewer={setNewer} />
        </>
      )}
    </>
  );
}

interface Of {
  address: Address;
  flow: string;
  settings: SettingBody[];
}

function Editable({ address, flow, settings, onNewer }: Of & { onNewer: (settings: SettingsBody) => void }) {
  const who = useMay("admin");
  const [edits, setEdits] = useEdits(flow);
  if (!who) return <List address={address} flow={flow} settings={settings} />;
  return (
    <>
      <Editor flow={flow} settings={settings} edits={edits} onEdits={setEdits} onNewer={onNewer} who={who} />
      <List
        address={address}
        flow={flow}
        settings={settings}
        edits={edits}
        onEdit={(one) => setEdits({ ...edits, [one.name]: one.value ?? "" })}
      />
    </>
  );
}

function List(props: Of & { edits?: Edits; onEdit?: (setting: SettingBody) => void }) {
  const { address, flow, settings, edits, onEdit } = props;
  const wanted = address.q.toLowerCase();
  const shown = settings.filter(
    (one) =>
      `${one.name} ${one.value ?? ""}`.toLowerCase().includes(wanted) &&
      (address.show === "all" || one.origin !== "default" || one.differs),
  );
  const set = (part: Partial<Address>) => go({ ...address, flow, ...part }, { replace: true });
  const columns: Column<SettingBody>[] = [
    { name: "name", title: "Setting", by: (one) => one.name, cell: (one) => <code title={one.name}>{one.name}</code> },
    { name: "value", title: "Value", cell: (one) => <span title={one.value ?? ""}>{one.value ?? ""}</span> },
    {
      name: "origin",
      title: "Comes from",
      by: origin,
      cell: (one) => <span title={one.file?.key ?? ""}>{origin(one)}</span>,
    },
    {
      name: "differs",
      title: "The file says",
      isWide: true,
      by: (one) => (one.differs ? 0 : 1),
      cell: (one) => one.differs && <span class="warn">{one.file?.value ?? "nothing"}: it does not count</span>,
    },
    { name: "default", title: "Default", isWide: true, cell: (one) => <span title={one.default ?? ""}>{one.default ?? ""}</span> },
    { name: "effect", title: "Effect", isWide: true, by: (one) => one.effect, cell: (one) => (one.effect === "works" ? "" : one.effect) },
  ];
  if (onEdit) {
    columns.splice(1, 0, {
      name: "change",
      title: "",
      isNarrow: true,
      cell: (one) =>
        one.may_change &&
        !(edits && one.name in edits) && (
          <button type="button" class="small" aria-label={`Change ${one.name}`} onClick={() => onEdit(one)}>
            change …
          </button>
        ),
    });
  }
  return (
    <>
      <div class="filters">
        <label>
          <input
            type="checkbox"
            checked={address.show === "all"}
            onChange={(event) => set({ show: event.currentTarget.checked ? "all" : "" })}
          />{" "}
          also those that have their default
        </label>
        <label>
          Name or value <input type="search" value={address.q} onInput={(event) => set({ q: event.currentTarget.value })} />
        </label>
        <span class="muted">
          {count(shown.length)} of {plural(settings.length, "setting")}
        </span>
      </div>
      <Rows
        label={`Settings of ${flow}`}
        rows={shown}
        keyOf={(one) => one.name}
        sort={address.sort}
        onSort={(sort) => set({ sort })}
        empty="No setting fits."
        columns={columns}
      />
    </>
  );
}
