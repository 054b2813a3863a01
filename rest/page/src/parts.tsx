// Small parts that several views use.

import type { ComponentChildren } from "preact";
import type { ApiError, FlowBody } from "./api";
import { type Address, write } from "./address";
import { seconds, time } from "./format";
import { type Polled, useNow } from "./poll";

export const Link = ({ to, children, ...rest }: { to: Address; children: ComponentChildren; class?: string }) => (
  <a href={write(to)} {...rest}>
    {children}
  </a>
);

/** Whether what is shown is too old to be called good. */
export function useStale(of: Polled<unknown>, lookAgeS: number | null = null): boolean {
  const now = useNow();
  return of.atMs !== null && now - of.atMs + 1000 * (lookAgeS ?? 0) > of.freshMs;
}

/** Says what is not as of now, and why. Nothing where all is fresh. */
export function Freshness({ of, what, lookAgeS }: { of: Polled<unknown>; what: string; lookAgeS?: number | null }) {
  const now = useNow();
  if (of.error && of.value === null) return <Failure error={of.error} what={what} />;
  const ageMs = of.atMs === null ? 0 : now - of.atMs;
  if (of.atMs !== null && (of.error || ageMs > of.freshMs)) {
    return (
      <p class="note warn" role="status">
        This shows {what} as of {time(of.atMs)}, {seconds(ageMs / 1000)} ago.{" "}
        {of.error?.message ?? "There is no newer answer yet."} The page asks again by itself.
      </p>
    );
  }
  if (lookAgeS != null && lookAgeS * 1000 > of.freshMs) {
    return (
      <p class="note warn" role="status">
        The worker knows {what} as of {seconds(lookAgeS)} ago: a cluster answers slowly.
      </p>
    );
  }
  return null;
}

export const Failure = ({ error, what }: { error: ApiError; what: string }) =>
  error.status === 403 ? (
    <p class="note">You may not see {what}. {error.message}</p>
  ) : (
    <p class="note bad" role="alert">
      Nothing is known of {what}. {error.message} The page asks again by itself.
    </p>
  );

/** Says what is not known of a flow: lists of it may leave something out. */
export const PartlyKnown = ({ flow }: { flow: FlowBody | undefined }) => (
  <>
    {flow?.unread.map((one) => (
      <p key={one} class="note warn">
        Only part is known: {one}
      </p>
    ))}
  </>
);

export const NONE_KNOWN = "None is known, but not everything could be read of this flow.";

/** Says that a list may lack something, and why. */
export const MayLack = ({ unread, what }: { unread: string[] | undefined; what: string }) =>
  unread?.length ? <p class="note warn">This list may lack {what}: {unread.join("; ")}</p> : null;

/** A text in which names are links to what they name. */
export function Linked({ text, names }: { text: string; names: Map<string, Address> }) {
  const wanted = [...names.keys()].filter(Boolean).sort((a, b) => b.length - a.length);
  if (!wanted.length) return <>{text}</>;
  const any = wanted.map((one) => one.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&")).join("|");
  const found = text.split(new RegExp(`(?<![\\w.-])(${any})(?![\\w-]|\\.\\w)`));
  return (
    <>
      {found.map((part, index) => {
        const to = index % 2 ? names.get(part) : undefined;
        return to ? (
          <Link key={index} to={to}>
            {part}
          </Link>
        ) : (
          part
        );
      })}
    </>
  );
}

export const Waiting = ({ what }: { what: string }) => <p class="note">Asking for {what} …</p>;

/** The shape of the last minutes, in a line of text; empty where there are fewer than two points. */
export function Spark({ values, label }: { values: (number | null)[]; label: string }) {
  const known = values.filter((one): one is number => one !== null);
  if (known.length < 2) return null;
  const most = Math.max(1, ...known);
  const step = 80 / Math.max(1, values.length - 1);
  let path = "";
  values.forEach((value, index) => {
    if (value === null) return;
    const before = values[index - 1];
    path += `${index === 0 || before == null ? "M" : "L"}${(index * step).toFixed(1)} ${(17 - (16 * value) / most).toFixed(1)}`;
  });
  return (
    <svg class="spark" viewBox="0 0 80 18" width="80" height="18" role="img" aria-label={label}>
      <path d={path} />
    </svg>
  );
}
