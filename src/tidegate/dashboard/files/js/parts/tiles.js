// Tiles with single values.

import { html } from "../view.js";

export const Tiles = ({ children, label = "Figures" }) => html`<ul class="tiles" aria-label=${label}>${children}</ul>`;

/** `kind`: good, warning or critical , if the value implies one; `href` links to its source. */
export function Tile({ label, value, note, kind, href }) {
  const inside = html`<span class="tile-label">${label}</span>
    <span class="tile-value">${value}</span>
    <span class="tile-note">${note}</span>`;
  return html`<li class="tile ${kind ? `tile-${kind}` : ""}">
    ${href ? html`<a class="tile-inside" href=${href}>${inside}</a>` : html`<div class="tile-inside">${inside}</div>`}
  </li>`;
}
