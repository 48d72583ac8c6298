// What is known of one thing: names and values, one below the other; and text as a machine wrote it.

import { html } from "../view.js";

/** `of` is [[name, value, note?]…]; what is false or null is left out. `isWide` gives long values room. */
export function Facts({ of, isWide = false }) {
  return html`<dl class=${isWide ? "facts facts-wide" : "facts"}>
    ${of.filter(Boolean).map(([name, value, note]) => html`<div key=${name}>
      <dt>${name}</dt>
      <dd>${value}${note && html` <span class="quiet">${note}</span>`}</dd>
    </div>`)}
  </dl>`;
}

/** A text or a value, as it is; `label` names the box, which can be scrolled by keys. */
export function Verbatim({ of, label }) {
  const text = typeof of === "string" ? of : JSON.stringify(of, null, 2);
  return html`<pre class="verbatim" tabindex="0" role="region" aria-label=${label}>${text}</pre>`;
}
