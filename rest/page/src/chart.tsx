// The chart of a flow: how far behind it was, in seconds and in records.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { HistoryEvent } from "./api";
import { at, go, minuteText, write } from "./address";
import { count, plural, seconds, time } from "./format";
import { isBad } from "./happened";
import { useSeesAll } from "./verbs";

export interface Drawn {
  timesMs: number[];
  seconds: (number | null)[];
  records: (number | null)[];
  /** How many topics were not copied, and so are not in the others; empty: not known. */
  leftOut: (number | null)[];
  /** What happened meanwhile, the oldest first. */
  events: HistoryEvent[];
}

const HEIGHT = 96;

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(name).trim();
  return { line: of("--line"), second: of("--second"), bad: of("--bad"), text: of("--muted"), grid: of("--rule"), unknown: of("--unknown") };
}

/** Shades what is not known, so that a gap does not look like nothing. */
function unknown(u: uPlot) {
  const [times, first, second] = u.data;
  const { ctx, bbox } = u;
  ctx.save();
  ctx.fillStyle = colours().unknown;
  let begin: number | null = null;
  const close = (end: number) => {
    if (begin === null) return;
    const left = Math.max(bbox.left, u.valToPos(begin, "x", true));
    const right = Math.min(bbox.left + bbox.width, u.valToPos(end, "x", true));
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
    begin = null;
  };
  times?.forEach((at, index) => {
    if (first?.[index] == null && second?.[index] == null) begin ??= at;
    else close(at);
  });
  if (begin !== null && times?.length) close(times[times.length - 1] as number);
  ctx.restore();
}

/** Marks what happened: a line from the top, red where something became worse. */
function marks(u: uPlot, events: HistoryEvent[]) {
  const { ctx, bbox } = u;
  const { bad, text } = colours();
  ctx.save();
  for (const one of [...events].sort((a, b) => Number(isBad(a)) - Number(isBad(b)))) {
    const x = Math.round(u.valToPos(one.at_ms / 1000, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = isBad(one) ? bad : text;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const size = 4 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x - size, bbox.top - size);
    ctx.lineTo(x + size, bbox.top - size);
    ctx.lineTo(x, bbox.top + size);
    ctx.fill();
  }
  ctx.restore();
}

const clock = (s: number) => time(s * 1000).slice(-9, -4);

function options(width: number, events: () => HistoryEvent[]): uPlot.Options {
  const { line, second, bad, text, grid } = colours();
  const axis = { stroke: text, font: "11px system-ui", ticks: { show: false }, grid: { stroke: grid, width: 1 } };
  const most = (least: number): uPlot.Scale => ({ range: (_u, _min, max) => [0, Math.max(least, max ?? 0)] });
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 5 } },
    padding: [6, 0, 0, 0],
    scales: { x: { time: true }, s: most(10), n: most(10) },
    axes: [
      { ...axis, size: 20, space: 60, values: (_u, at) => at.map(clock) },
      { ...axis, scale: "s", size: 46, space: 30, values: (_u, at) => at.map((one) => (one ? seconds(one) : "0")) },
      {
        ...axis,
        scale: "n",
        side: 1,
        size: 46,
        space: 30,
        grid: { show: false },
        values: (_u, at) => at.map((one) => short(one)),
      },
    ],
    series: [
      {},
      { scale: "s", stroke: line, width: 1.5, fill: `${line}22`, points: { show: false } },
      { scale: "n", stroke: second, width: 1, dash: [4, 3], points: { show: false } },
      // a line along the bottom while topics were not copied: they are in neither of the others
      { scale: "s", stroke: bad, width: 5, points: { show: false } },
    ],
    hooks: { drawClear: [unknown], draw: [(u) => marks(u, events())] },
  };
}

function short(value: number): string {
  if (value >= 1e9) return `${value / 1e9}G`;
  if (value >= 1e6) return `${value / 1e6}M`;
  if (value >= 1e4) return `${value / 1e3}k`;
  return `${value}`;
}

export function Chart({ drawn, flow, range, note }: { drawn: Drawn; flow: string; range: string; note: string }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [scheme, setScheme] = useState(0);
  const [shown, setShown] = useState<number | null>(null);
  const events = useRef(drawn.events);
  events.current = drawn.events;
  const seesEvents = useSeesAll();
  const data: uPlot.AlignedData = [
    drawn.timesMs.map((one) => one / 1000),
    drawn.seconds,
    drawn.records,
    drawn.timesMs.map((_, index) => (drawn.leftOut[index] ? 0 : null)),
  ];
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const look = () => setScheme((before) => before + 1);
    query.addEventListener("change", look);
    return () => query.removeEventListener("change", look);
  }, []);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = new uPlot(
      { ...options(element.clientWidth || 300, () => events.current), plugins: [{ hooks: { setCursor: (u) => setShown(u.cursor.idx ?? null) } }] },
      data,
      element,
    );
    plot.current = made;
    if (seesEvents) made.over.addEventListener("click", () => toEvents(made, flow));
    const watching = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    watching.observe(element);
    return () => {
      watching.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [scheme]);
  useEffect(() => plot.current?.setData(data), [drawn]);
  const index = shown ?? lastKnown(drawn);
  const known = drawn.seconds.filter((one): one is number => one !== null);
  const summary = known.length
    ? `at most ${seconds(Math.max(...known))} behind, last ${seconds(known.at(-1))}`
    : "nothing is known yet";
  return (
    <figure class="chart">
      <div ref={box} role="img" aria-label={`How far ${flow} was behind: ${summary}. ${note}`} />
      <figcaption>
        <ul class="legend">
          {index !== null && <li>{time(drawn.timesMs[index])}</li>}
          <li>
            <span class="key first" />
            {seconds(index === null ? null : drawn.seconds[index])} behind (left)
          </li>
          <li>
            <span class="key second" />
            {count(index === null ? null : drawn.records[index])} records behind (right)
          </li>
          <li class={index !== null && drawn.leftOut[index] ? "bad" : ""}>
            <span class="key left-out" />
            {index === null || drawn.leftOut[index] == null ? "– topics" : plural(drawn.leftOut[index], "topic")} not copied
          </li>
          <li>
            <span class="key mark" />
            {seesEvents ? (
              <a href={write(at({ view: "events", flow, range }))}>{plural(drawn.events.length, "event")}</a>
            ) : (
              plural(drawn.events.length, "event")
            )}
          </li>
          <li>
            <span class="key none" /> not known
          </li>
        </ul>
        {shown !== null &&
          near(drawn, shown).map((one) => (
            <p key={`${one.at_ms} ${one.text}`} class={isBad(one) ? "bad" : "muted"}>
              {time(one.at_ms)} {one.text}
            </p>
          ))}
        {note && <p class="muted">{note}</p>}
      </figcaption>
    </figure>
  );
}

/** The last events around a place of the chart. */
function near({ timesMs, events }: Drawn, index: number): HistoryEvent[] {
  const atMs = timesMs[index] ?? 0;
  const roomMs = ((timesMs.at(-1) ?? 0) - (timesMs[0] ?? 0)) / 80;
  return events.filter((one) => Math.abs(one.at_ms - atMs) <= roomMs).slice(-2);
}

/** Go to what happened around the place that the cursor shows. */
function toEvents(u: uPlot, flow: string) {
  const { min, max } = u.scales.x ?? {};
  if (min == null || max == null || u.cursor.left == null || u.cursor.left < 0) return;
  const atS = u.posToVal(u.cursor.left, "x");
  const roomS = Math.max(60, (max - min) / 12);
  const [from, to] = [minuteText((atS - roomS) * 1000), minuteText((atS + roomS) * 1000)];
  go(at({ view: "events", flow, from, to }));
}

function lastKnown(drawn: Drawn): number | null {
  for (let index = drawn.timesMs.length - 1; index >= 0; index -= 1) {
    if (drawn.seconds[index] != null || drawn.records[index] != null) return index;
  }
  return null;
}
