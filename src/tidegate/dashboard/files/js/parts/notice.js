// What must be read before anything else: a remark, a warning, or what went wrong.

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

/** A `Problem` of the API, where there is one; nothing otherwise. `retry` asks again. */
export function Problem({ of, retry }) {
  if (!of) return null;
  const again = retry && html`<button type="button" class="button" onClick=${retry}>Try again</button>`;
  return html`<${Notice} kind=${of.status === 404 ? "info" : "critical"} title=${of.title} actions=${again}>
    ${sentence(of.detail)}
  <//>`;
}

/** Where there is nothing: what that means, and what to do next. */
export function Empty({ title, children, command }) {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${children && html`<p>${children}</p>`}
    ${command && html`<p><code class="command">${command}</code></p>`}
  </div>`;
}
