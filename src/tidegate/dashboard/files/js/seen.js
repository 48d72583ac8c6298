// History of values for which the server keeps none, recorded in this tab.

import { now } from "./clock.js";
import { useEffect, useMemo, useState } from "./view.js";

const MOST_POINTS = 720;
const MOST_SERIES = 300;
const BEAT_MS = 5000;
const seen = new Map();

/**
 * Remember `values` ({name: number}) at time `at` (ms). Returns {name: [[seconds, value]…]} of these names up to now;
 * a value without a reported change is unchanged. The points survive navigation to another page.
 */
export function useSeen(values, at) {
  const [beat, next] = useState(0);
  useEffect(() => {
    const beating = setInterval(() => document.hidden || next((last) => last + 1), BEAT_MS);
    return () => clearInterval(beating);
  }, []);
  useEffect(() => {
    if (at === null || at === undefined) return;
    for (const [name, value] of Object.entries(values)) note(name, at / 1000, value);
    next((last) => last + 1);
  }, [at]);
  const names = Object.keys(values);
  return useMemo(
    () => Object.fromEntries(names.map((name) => [name, untilNow(seen.get(name) ?? [])])),
    [beat, names.join()],
  );
}

function note(name, seconds, value) {
  if (value === null || value === undefined || (!seen.has(name) && seen.size >= MOST_SERIES)) return;
  const points = seen.get(name) ?? [];
  if (seconds <= (points.at(-1)?.[0] ?? 0)) return;
  seen.set(name, [...points, [seconds, value]].slice(-MOST_POINTS));
}

function untilNow(points) {
  const seconds = now() / 1000;
  const last = points.at(-1);
  return last && seconds > last[0] ? [...points, [seconds, last[1]]] : points;
}
