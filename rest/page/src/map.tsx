// The map: clusters, and the flows between them.

import type { ClusterBody, FlowBody } from "./api";
import { at, write } from "./address";
import { seconds } from "./format";
import { staleTone, toneOf } from "./state";

const BOX = { width: 84, height: 34 };
const WIDTH = 340;
/** Both directions of a pair lie beside each other. */
const APART = 13;

interface Place {
  x: number;
  y: number;
}

function places(names: string[]): { at: Map<string, Place>; height: number } {
  const found = new Map<string, Place>();
  if (names.length <= 2) {
    names.forEach((name, index) => found.set(name, { x: index === 0 ? 52 : WIDTH - 52, y: 55 }));
    return { at: found, height: 110 };
  }
  const radius = Math.max(80, names.length * 17);
  names.forEach((name, index) => {
    const angle = Math.PI + (2 * Math.PI * index) / names.length;
    found.set(name, { x: WIDTH / 2 + (WIDTH / 2 - 52) * Math.cos(angle), y: radius + 30 + radius * Math.sin(angle) });
  });
  return { at: found, height: 2 * radius + 60 };
}

/** Where a line that begins within the box around `centre` leaves it. */
function edgeOf(centre: Place, begin: Place, direction: Place, room: number): Place {
  const share = (half: number, offset: number, step: number) =>
    step ? (Math.sign(step) * (half + room) - offset) / step : Infinity;
  const along = Math.min(
    share(BOX.width / 2, begin.x - centre.x, direction.x),
    share(BOX.height / 2, begin.y - centre.y, direction.y),
  );
  return { x: begin.x + direction.x * along, y: begin.y + direction.y * along };
}

export function ClusterMap(props: { flows: FlowBody[]; clusters: ClusterBody[] | null; isStale: boolean }) {
  const { flows, clusters, isStale } = props;
  const names = [...new Set(flows.flatMap((one) => one.flow.split("->")))].sort();
  if (names.length < 2) return null;
  const { at: placed, height } = places(names);
  const unreachable = new Map(clusters?.filter((one) => !one.is_reachable).map((one) => [one.cluster, one.why]));
  return (
    <svg class="map" viewBox={`0 0 ${WIDTH} ${height}`} role="group" aria-label="Clusters and the flows between them">
      <defs>
        {(["good", "warn", "bad", "off"] as const).map((tone) => (
          <marker id={`arrow-${tone}`} key={tone} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path class={`arrow ${tone}`} d="M0 0 8 4 0 8z" />
          </marker>
        ))}
      </defs>
      {flows.map((flow) => {
        const [source = "", target = ""] = flow.flow.split("->");
        const from = placed.get(source);
        const to = placed.get(target);
        if (!from || !to || from === to) return null;
        const length = Math.hypot(to.x - from.x, to.y - from.y);
        const ahead = { x: (to.x - from.x) / length, y: (to.y - from.y) / length };
        const aside = { x: ahead.y, y: -ahead.x };
        const moved = (one: Place, by: number) => ({ x: one.x + aside.x * by, y: one.y + aside.y * by });
        const begin = edgeOf(from, moved(from, APART), ahead, 1);
        const end = edgeOf(to, moved(to, APART), { x: -ahead.x, y: -ahead.y }, 2);
        const [word, tone] = isStale ? staleTone(toneOf(flow)) : toneOf(flow);
        const behind = flow.verdict?.behind_s;
        const label = word === "safe" && behind != null ? seconds(behind) : word;
        const text = moved({ x: (begin.x + end.x) / 2, y: (begin.y + end.y) / 2 }, 6 + 6 * Math.abs(aside.y));
        const anchor = Math.abs(aside.x) < 0.25 ? "middle" : aside.x < 0 ? "end" : "start";
        return (
          <a key={flow.flow} href={write(at({ view: "topics", flow: flow.flow }))} aria-label={`${flow.flow}: ${label === word ? word : `${word}, ${label}`}`}>
            <path class={`edge ${tone}`} d={`M${begin.x} ${begin.y}L${end.x} ${end.y}`} marker-end={`url(#arrow-${tone})`} />
            <text class={`label ${tone}`} x={text.x} y={text.y + 4} text-anchor={anchor}>
              {label}
            </text>
          </a>
        );
      })}
      {names.map((name) => {
        const { x, y } = placed.get(name) as Place;
        const why = unreachable.get(name);
        return (
          <g key={name}>
            <rect
              class={why === undefined ? "cluster" : "cluster bad"}
              x={x - BOX.width / 2}
              y={y - BOX.height / 2}
              width={BOX.width}
              height={BOX.height}
              rx="4"
            />
            <text class="name" x={x} y={y + (why === undefined ? 5 : 0)} text-anchor="middle">
              {name.length > 11 ? `${name.slice(0, 10)}…` : name}
              <title>{why ?? name}</title>
            </text>
            {why !== undefined && (
              <text class="label bad" x={x} y={y + 12} text-anchor="middle">
                no answer
              </text>
            )}
          </g>
        );
      })}
    </svg>
  );
}
