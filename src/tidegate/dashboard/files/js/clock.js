// The server's time, so that countdowns are right even if the clock of this machine is wrong.

import { shared, useShared } from "./state.js";

const WORTH_CORRECTING_MS = 3000;
let aheadMs = 0;

/** Synchronize with the `Date` header of an answer, which has whole seconds. */
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

/** The current time as a hook, updated every second. */
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
