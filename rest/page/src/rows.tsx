// A table of any length: only the rows that can be seen are in the document.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

const ROW_PX = 30;
const SPARE = 12;
const VIRTUAL_FROM = 200;

export interface Column<T> {
  name: string;
  /** The heading. */
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Orders rows; none: the column is not sorted by. */
  by?: (row: T) => number | string;
  isNumber?: boolean;
  /** Left out where the screen is narrow. */
  isWide?: boolean;
  /** As narrow as what is in it. */
  isNarrow?: boolean;
}

export function Rows<T>(props: {
  label: string;
  rows: T[];
  columns: Column<T>[];
  keyOf: (row: T) => string | number;
  /** The column to sort by, with a minus before it for the other way round; empty: as given. */
  sort: string;
  onSort: (sort: string) => void;
  empty: string;
}) {
  const { rows, columns, keyOf, sort } = props;
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 60]);
  const sorted = useMemo(() => sortedBy(rows, columns, sort), [rows, sort]); // once, and not for each step of scrolling
  const isVirtual = sorted.length > VIRTUAL_FROM;

  const look = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW_PX) - SPARE);
    const last = first + Math.ceil(element.clientHeight / ROW_PX) + 2 * SPARE;
    setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
  };
  useLayoutEffect(look, [sorted.length]);
  useEffect(() => {
    const watching = new ResizeObserver(look);
    if (box.current) watching.observe(box.current);
    return () => watching.disconnect();
  }, []);

  if (!rows.length) return <p class="note">{props.empty}</p>;
  const [first, last] = isVirtual ? range : [0, sorted.length];
  const shown = sorted.slice(first, last);
  const below = Math.max(0, sorted.length - last);
  return (
    <div
      class={isVirtual ? "table virtual" : "table"}
      ref={box}
      onScroll={look}
      tabIndex={0}
      role="region"
      aria-label={props.label}
    >
      <table aria-rowcount={sorted.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map((column) => (
              <Heading key={column.name} column={column} sort={sort} onSort={props.onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Space rows={first} columns={columns.length} />}
          {shown.map((row, index) => (
            <tr key={keyOf(row)} aria-rowindex={first + index + 2}>
              {columns.map((column) => (
                <td key={column.name} class={classOf(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {below > 0 && <Space rows={below} columns={columns.length} />}
        </tbody>
      </table>
    </div>
  );
}

const Space = ({ rows, columns }: { rows: number; columns: number }) => (
  <tr class="space" aria-hidden="true">
    <td colSpan={columns} style={{ height: `${rows * ROW_PX}px` }} />
  </tr>
);

const classOf = <T,>(column: Column<T>) =>
  [column.isNumber && "number", column.isWide && "wide", column.isNarrow && "narrow"].filter(Boolean).join(" ") || undefined;

function Heading<T>({ column, sort, onSort }: { column: Column<T>; sort: string; onSort: (sort: string) => void }) {
  const isDown = sort === `-${column.name}`;
  const isSorted = isDown || sort === column.name;
  return (
    <th scope="col" class={classOf(column)} aria-sort={isSorted ? (isDown ? "descending" : "ascending") : "none"}>
      {column.by ? (
        <button
          type="button"
          onClick={() => onSort(isSorted ? (isDown ? column.name : `-${column.name}`) : column.isNumber ? `-${column.name}` : column.name)}
        >
          {column.title}
          <span aria-hidden="true">{isSorted ? (isDown ? " ↓" : " ↑") : ""}</span>
        </button>
      ) : (
        column.title || <span class="hidden">Actions</span>
      )}
    </th>
  );
}

const collator = new Intl.Collator("en");

function sortedBy<T>(rows: T[], columns: Column<T>[], sort: string): T[] {
  const by = columns.find((one) => one.name === sort.replace(/^-/, ""))?.by;
  if (!by) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  return rows
    .map((row) => [by(row), row] as const)
    .sort(([a], [b]) => sign * (typeof a === "string" ? collator.compare(a, String(b)) : a - Number(b)))
    .map(([, row]) => row);
}
