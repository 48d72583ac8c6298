// A shared value; components that use it are rendered again when it changes.

import { useEffect, useState } from "./view.js";

/** @template T @param {T} first */
export function shared(first) {
  let value = first;
  const watchers = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const watcher of [...watchers]) watcher(value);
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

/** The current value as a hook. */
export function useShared(of) {
  const [value, show] = useState(of.get());
  useEffect(() => {
    show(of.get());
    return of.watch(show);
  }, [of]);
  return value;
}
