// The flow that a view is of: the one in the address, else the first that is not refused.

import type { FlowBody } from "./api";
import { type Address, at, go } from "./address";

export const flowOf = (address: Address, flows: FlowBody[]) =>
  address.flow || flows.find((one) => one.verdict)?.flow || flows[0]?.flow || "";

export function FlowChoice({ address, flow, flows }: { address: Address; flow: string; flows: FlowBody[] }) {
  const names = [...new Set([...flows.map((one) => one.flow), ...(flow ? [flow] : [])])].sort();
  return (
    <select
      aria-label="Flow"
      value={flow}
      onChange={(event) => go(at({ view: address.view, flow: event.currentTarget.value, show: address.show }))}
    >
      {names.map((name) => (
        <option key={name} value={name}>
          {name.replace("->", " → ")}
        </option>
      ))}
    </select>
  );
}
