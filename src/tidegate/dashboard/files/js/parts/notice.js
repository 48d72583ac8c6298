// Notices: remarks, warnings and errors.

import { html } from "../view.js";
import { sentence } from "./format.js";
import { Icon } from "./icon.js";

const ICONS = { info: "info", good: "check", warning: "alert", critical: "alert" };

/** `kind`: info, good, warning or critical. */
export function Notice({ kind = "info", title, children, actions }) {
  return html`<div class="notice notice-${kind}" role=${kind === "critical" ? "alert" : "note"}>
    <${Icon} name=${ICONS[kind]} size=${18} />
    <div class="notice-text">
      ${title && html`<strong>${title}</strong>`}
      <div>${children}</div>
    </div>
    ${actions && html`<div class="notice-actions">${actions}</div>`}
  </div>`;
}

/** Shows a `Problem` of the API if there is one. `retry` repeats the request. */
export function Problem({ of, retry }) {
  if (!of) return null;
  const again = retry && html`<button type="button" class="button" onClick=${retry}>Try again</button>`;
  return html`<${Notice} kind=${of.status === 404 ? "info" : "critical"} title=${of.title} actions=${again}>
    ${sentence(of.detail)}
  <//>`;
}

/** Placeholder of an empty list: what that means, and what to do next. */
export function Empty({ title, children, command }) {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${children && html`<p>${children}</p>`}
    ${command && html`<p><code class="command">${command}</code></p>`}
  </div>`;
}
