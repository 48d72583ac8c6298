// Name and value lists of one object, and preformatted text.

import { html } from "../view.js";

/** `of` is [[name, value, note?]…]; entries that are false or null are omitted. `isWide` gives long values more space. */
export function Facts({ of, isWide = false }) {
  return html`<dl class=${isWide ? "facts facts-wide" : "facts"}>
    ${of.filter(Boolean).map(([name, value, note]) => html`<div key=${name}>
      <dt>${name}</dt>
      <dd>${value}${note && html` <span class="quiet">${note}</span>`}</dd>
    </div>`)}
  </dl>`;
}

/** Preformatted text or JSON; `label` names the box, which can be scrolled with the keyboard. */
export function Verbatim({ of, label }) {
  const text = typeof of === "string" ? of : JSON.stringify(of, null, 2);
  return html`<pre class="verbatim" tabindex="0" role="region" aria-label=${label}>${text}</pre>`;
}
