// The time as the server has it: a count-down is right also where the clock of this machine is not.

import { shared, useShared } from "./state.js";

const WORTH_CORRECTING_MS = 3000;
let aheadMs = 0;

/** Learn from the `Date` of an answer, which is cut to whole seconds. */
export function heardFromServer(date) {
  const server = Date.parse(date ?? "");
  if (Number.isNaN(server)) return;
  const found = server + 500 - Date.now();
  aheadMs = Math.abs(found) < WORTH_CORRECTING_MS ? 0 : found;
}

/** Now, in milliseconds, by the server's clock. */
export const now = () => Date.now() + aheadMs;

const second = shared(now());
let watching = 0;
let ticking = null;

/** Now, again every second while it is shown. */
export function useNow() {
  return useShared(ticks);
}

const ticks = {
  get: now,
  watch(watcher) {
    const unwatch = second.watch(watcher);
    watching += 1;
    ticking ??= setInterval(() => document.hidden || second.set(now()), 1000);
    return () => {
      unwatch();
      watching -= 1;
      if (watching > 0) return;
      clearInterval(ticking);
      ticking = null;
    };
  },
};
