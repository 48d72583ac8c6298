// Formats numbers, times and names for display.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

/** 1234567 → "1,234,567"; "–" if it is unknown. */
export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));

/** 1234567 → "1.2M", for axes and narrow columns. */
export const compact = (value) => (value === null || value === undefined ? "–" : short.format(value));

/** 12.34 → "12.3", 0.04 → "0.04"; rates keep their significant digits. */
export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0 || value >= 100) return whole.format(value);
  return new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }).format(value);
}

/** 3 of 4 → "75 %"; "0 %" if the total is 0. Never rounded up to 100 %. */
export function percent(part, all) {
  if (!all) return "0 %";
  const found = Math.round((part / all) * 100);
  return `${part < all ? Math.min(99, found) : 100} %`;
}

/** (3, "job") → "3 jobs"; (1, "job") → "1 job". */
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** 95_000 → "1 min 35 s"; at most two units, the second only for small values of the first. */
export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return pair(seconds, 60, "min", "s");
  if (seconds < 86_400) return pair(seconds / 60, 60, "h", "min");
  return pair(seconds / 3600, 24, "d", "h");
}

/** 95_000 → "1 min": one unit, for past times. */
export const roughly = (ms) => duration(ms).split(" ").slice(0, 2).join(" ");

/** Milliseconds of a time: an ISO string, milliseconds or a Date; NaN for null. */
export const moment = (at) => (typeof at === "string" ? Date.parse(at) : Number(at ?? NaN));

/** "16 Nov 2026, 05:21:22", in the reader's time zone. */
export const exactly = (at) => exact.format(moment(at));

/** "05:21:22". */
export const clockTime = (at) => clock.format(moment(at));

/** Makes a sentence of a message: first letter in upper case, full stop at the end. */
export const sentence = (text) => capital(text).replace(/([^.!?])$/, "$1.");

/** "no_credential" → "no credential". */
export const words = (name) => String(name).replaceAll("_", " ");

/** "issue_comments" → "Issue comments". */
export const title = (name) => capital(words(name));

const capital = (text) => text.replace(/^./, (first) => first.toUpperCase());

function pair(amount, size, large, small) {
  const rest = Math.floor(amount) % size;
  const most = Math.floor(amount / size);
  return rest && most < 10 ? `${most} ${large} ${rest} ${small}` : `${most} ${large}`;
}
