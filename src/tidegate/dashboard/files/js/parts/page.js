// Layout of a page and of its sections.

import { html, useEffect, useId } from "../view.js";
import { clockTime } from "./format.js";
import { Icon } from "./icon.js";

/**
 * A page. `lead` describes it in a sentence; `live` is the result of `useTopic` or `useRun`, to show whether the page is
 * live; `back` is {href, label} of the parent page.
 */
export function Page({ title, lead, actions, live, back, badge, children }) {
  useEffect(() => {
    document.title = `${title} · Tidegate`;
  }, [title]);
  useEffect(() => keepFocus, []); // another page may replace this one: "not found" instead of "loading"
  return html`<div class="page">
    <header class="page-head">
      <div class="page-title">
        ${back && html`<a class="page-back" href=${back.href}><${Icon} name="back" size=${14} />${back.label}</a>`}
        <div class="page-name"><h1 tabindex="-1">${title}</h1>${badge}${live && html`<${Liveness} of=${live} />`}</div>
        ${lead && html`<p class="page-lead">${lead}</p>`}
      </div>
      ${actions && html`<div class="page-actions">${actions}</div>`}
    </header>
    ${children}
  </div>`;
}

/** When an element disappears: keeps the keyboard focus in a useful place. */
export function keepFocus() {
  setTimeout(() => {
    if (document.activeElement === document.body) document.querySelector("h1")?.focus({ preventScroll: true });
  });
}

/** A section with a heading. `aside` is at the end of the heading's line. */
export function Section({ title, note, aside, children, plain = false }) {
  const id = useId();
  return html`<section class=${plain ? "section" : "section card"} aria-labelledby=${id}>
    <div class="section-head">
      <h2 id=${id}>${title}</h2>
      ${note && html`<p class="section-note">${note}</p>`}
      ${aside && html`<div class="section-aside">${aside}</div>`}
    </div>
    ${children}
  </section>`;
}

/** Sections side by side if there is space. */
export const Columns = ({ children }) => html`<div class="columns">${children}</div>`;

/** Shows whether the page is live. */
export function Liveness({ of }) {
  if (of.isLive) return html`<span class="live live-on"><span class="live-dot"></span>Live</span>`;
  if (of.since === null) return html`<span class="live"><span class="live-dot"></span>Connecting…</span>`;
  return html`<span class="live live-off"><span class="live-dot"></span>Not live since ${clockTime(of.since)}</span>`;
}
