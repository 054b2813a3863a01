// Numbers and times as the page writes them. What is not known is a dash.

export const UNKNOWN = "–";

const whole = new Intl.NumberFormat("en");

export const count = (value: number | null | undefined) => (value == null ? UNKNOWN : whole.format(value));

/** Of a number that leaves out what is not known: 0 of it says nothing. */
export const atLeast = (value: number | null, isPartial: boolean) =>
  isPartial && value !== null ? (value ? `at least ${count(value)}` : UNKNOWN) : count(value);

/** `round`: `Math.floor` where more time than there is must not be promised. */
export function seconds(value: number | null | undefined, round = Math.round): string {
  if (value == null) return UNKNOWN;
  if (value < 10) return `${(round(value * 10) / 10).toFixed(1)} s`;
  if (value < 120) return `${round(value)} s`;
  if (value < 7200) return `${round(value / 60)} min`;
  if (value < 172_800) return `${round(value / 3600)} h`;
  return `${round(value / 86_400)} d`;
}

export function bytes(value: number | null | undefined): string {
  if (value == null) return UNKNOWN;
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value >= 99.5 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

const DATE_MOST_MS = 8.64e15;

const two = (value: number) => String(value).padStart(2, "0");

/** The time of day in UTC, as in logs and commands; with the date if that is not today's. */
export function time(ms: number | null | undefined): string {
  if (ms == null || !(Math.abs(ms) <= DATE_MOST_MS)) return UNKNOWN;
  const at = new Date(ms);
  const clock = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}Z`;
  const day = at.toISOString().slice(0, 10);
  return day === new Date().toISOString().slice(0, 10) ? clock : `${day} ${clock}`;
}

export const plural = (value: number, one: string) => `${count(value)} ${one}${value === 1 ? "" : "s"}`;

export const sentence = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
