// Time series: the history of the server, and new points as they arrive.

import { useFetched, useTopic } from "./live.js";
import { useEffect, useMemo, useRef, useState } from "./view.js";

const MOST_POINTS = 1500;
const PERIOD_MS = 300_000;

/**
 * The series of these names, updated as points arrive: {series: [{name, unit, points: [[seconds, value]…]}], problem};
 * `series` is null until they are loaded. A name that ends with "/" selects all names with this prefix. The order is
 * that of `names`; series that do not exist yet are omitted. `length` is that of the range in ms; null: the last hour.
 */
export function useHistory(names, length = null) {
  const query = names.map((name) => `series=${encodeURIComponent(name)}`).join("&");
  // Stored points have a period of five minutes: in between, the range stays the same.
  const since = length === null ? null : Math.floor(Date.now() / PERIOD_MS) * PERIOD_MS - length;
  const from = since === null ? "" : `&since=${new Date(since).toISOString()}`;
  const { value, problem, reload } = useFetched(`/v1/history?${query}${from}`);
  useEffect(() => onReturn(reload), [reload]);
  const newest = useTopic("history").value;
  const known = useRef(new Map());
  const [drawn, draw] = useState(0);
  useEffect(() => {
    if (!value) return;
    known.current = new Map(value.series.map((one) => [one.name, one]));
    draw((last) => last + 1);
  }, [value]);
  useEffect(() => {
    if (newest && value && grow(known.current, newest.series, names)) draw((last) => last + 1);
  }, [newest]);
  const series = useMemo(() => (value ? ordered(known.current, names) : null), [value, drawn, query]);
  return { series, problem };
}

/** Points that arrived while the page was hidden are requested. */
function onReturn(reload) {
  const look = () => document.hidden || reload();
  document.addEventListener("visibilitychange", look);
  return () => document.removeEventListener("visibilitychange", look);
}

/** Points of one series, or none. */
export const pointsOf = (series, name) => series?.find((one) => one.name === name)?.points ?? [];

function grow(known, newest, names) {
  let hasGrown = false;
  for (const { name, unit, points } of newest) {
    if (!names.some((wanted) => covers(wanted, name)) || points.length === 0) continue;
    const one = known.get(name) ?? { name, unit, points: [] };
    const last = one.points.at(-1)?.[0] ?? 0;
    const fresh = points.filter(([at]) => at > last);
    if (fresh.length === 0) continue;
    known.set(name, { ...one, points: [...one.points, ...fresh].slice(-MOST_POINTS) });
    hasGrown = true;
  }
  return hasGrown;
}

function ordered(known, names) {
  const found = new Set(names.flatMap((wanted) => [...known.keys()].filter((name) => covers(wanted, name)).sort()));
  return [...found].map((name) => known.get(name));
}

const covers = (wanted, name) => (wanted.endsWith("/") ? name.startsWith(wanted) : name === wanted);
