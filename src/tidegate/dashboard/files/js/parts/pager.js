// Pagination with the `next` links of the API. Previous pages are remembered, since the API has no links back.

import { html, useCallback, useEffect, useState } from "../view.js";
import { Icon } from "./icon.js";

/**
 * The visited pages. `first` is the path of the first page; a change of it starts again:
 * {path, isFirst, page, forward(next), back, restart}.
 */
export function usePages(first) {
  const [trail, walk] = useState([first]);
  useEffect(() => walk([first]), [first]);
  const here = trail[0] === first ? trail : [first];
  return {
    path: here.at(-1),
    page: here.length,
    isFirst: here.length === 1,
    forward: useCallback((next) => walk((seen) => [...seen, next]), []),
    back: useCallback(() => walk((seen) => (seen.length > 1 ? seen.slice(0, -1) : seen)), []),
    restart: useCallback(() => walk((seen) => seen.slice(0, 1)), []),
  };
}

/** `pages` is from `usePages`, `next` the field of the answer, null on the last page; `label` names the list. */
export function Pager({ pages, next, label }) {
  if (pages.isFirst && !next) return null;
  return html`<nav class="pager" aria-label=${`Pages of ${label}`}>
    <button type="button" class="button" disabled=${pages.isFirst} onClick=${pages.back}>
      <${Icon} name="back" />Previous
    </button>
    <span class="quiet" aria-live="polite">Page ${pages.page}</span>
    <button type="button" class="button" disabled=${!next} onClick=${() => pages.forward(next)}>
      Next<${Icon} name="arrow" />
    </button>
  </nav>`;
}
