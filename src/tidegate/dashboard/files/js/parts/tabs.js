// Tabs of a page; each has its own address.

import { html, useEffect, useRef } from "../view.js";
import { number } from "./format.js";

/** `tabs` is [{id, label, href, count?, isGrave?}]; `at` is the id of the current tab. */
export function Tabs({ label, tabs, at }) {
  const bar = useRef(null);
  useEffect(() => {
    // On a phone not all tabs fit: scroll to the current one.
    const shown = bar.current?.querySelector("[aria-current]");
    if (shown) bar.current.scrollLeft = shown.offsetLeft - (bar.current.clientWidth - shown.offsetWidth) / 2;
  }, [at, tabs.length, tabs.some((tab) => tab.count !== undefined)]);
  return html`<nav class="tabs" aria-label=${label} ref=${bar}>
    ${tabs.map((tab) => html`<${Tab} key=${tab.id} of=${tab} isHere=${tab.id === at} />`)}
  </nav>`;
}

function Tab({ of, isHere }) {
  return html`<a href=${of.href} class="tab" aria-current=${isHere ? "page" : undefined}>
    ${of.label}
    ${of.count !== undefined && html`<span class=${of.isGrave ? "tab-count tab-grave" : "tab-count"}>
      ${number(of.count)}
    </span>`}
  </a>`;
}
