// Each setting of a flow with its value, and where the value comes from.

import { type Answer, type FlowBody, flowPath, get, type SettingBody, type SettingsBody } from "./api";
import { type Address, go } from "./address";
import { FlowChoice, flowOf } from "./choice";
import { count, plural, time } from "./format";
import { Freshness, Waiting } from "./parts";
import { type Polled, usePolled } from "./poll";
import { type Column, Rows } from "./rows";

const origin = (one: SettingBody) =>
  one.origin === "file" && one.file ? `file${one.file.line === null ? "" : `, line ${one.file.line}`}` : one.origin;

export function SettingsView({ address, flows }: { address: Address; flows: Polled<Answer<FlowBody[]>> }) {
  const known = flows.value?.body ?? [];
  const flow = flowOf(address, known);
  const path = flow ? `${flowPath(flow)}/config` : null;
  const settings = usePolled(path, 10_000, (signal) => get<SettingsBody>(path ?? "", signal));
  const body = settings.value?.body;
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
          <List address={address} flow={flow} settings={body.settings} />
        </>
      )}
    </>
  );
}

function List({ address, flow, settings }: { address: Address; flow: string; settings: SettingBody[] }) {
  const wanted = address.q.toLowerCase();
  const shown = settings.filter(
    (one) =>
      `${one.name} ${one.value ?? ""}`.toLowerCase().includes(wanted) &&
      (address.show === "all" || one.origin !== "default" || one.differs),
  );
  const set = (part: Partial<Address>) => go({ ...address, flow, ...part }, { replace: true });
  const columns: Column<SettingBody>[] = [
    { name: "name", title: "Setting", by: (one) => one.name, cell: (one) => <code>{one.name}</code> },
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
