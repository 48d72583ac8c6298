// Meters: the remaining part of a quota, or the completed part of a run.

import { html } from "../view.js";
import { number, percent } from "./format.js";

const LITTLE = 0.1;

/** A remaining amount; `isWorrying` marks it as too low regardless of its size; `label` is for screen readers. */
export function Meter({ value, most, label, text, isWorrying = false }) {
  const share = most ? Math.max(0, Math.min(1, value / most)) : 0;
  const kind = value === 0 ? "critical" : share < LITTLE || isWorrying ? "warning" : "good";
  return html`<div class="meter">
    <div
      class="meter-track"
      role="meter"
      aria-label=${label}
      aria-valuemin="0"
      aria-valuemax=${most ?? 0}
      aria-valuenow=${value ?? 0}
      aria-valuetext=${`${number(value)} of ${number(most)}`}
    >
      <${Bar} kind=${kind} share=${share} />
    </div>
    <span class="meter-text">${text ?? `${number(value)} of ${number(most)}`}</span>
  </div>`;
}

/** Progress: `done` includes the `failed` ones. */
export function Progress({ done, failed = 0, most, label, text }) {
  return html`<div class="meter">
    <div
      class="meter-track"
      role="progressbar"
      aria-label=${label}
      aria-valuemin="0"
      aria-valuemax=${most}
      aria-valuenow=${done}
      aria-valuetext=${`${number(done)} of ${number(most)}${failed ? `, ${number(failed)} failed` : ""}`}
    >
      <${Bar} kind="done" share=${most ? (done - failed) / most : 0} />
      ${failed > 0 && html`<${Bar} kind="critical" share=${failed / most} />`}
    </div>
    <span class="meter-text">${text ?? percent(done, most)}</span>
  </div>`;
}

const Bar = ({ kind, share }) =>
  html`<span
    class="meter-bar meter-${kind}"
    style=${{ width: `${(Math.max(0, Math.min(1, share)) * 100).toFixed(2)}%` }}
  ></span>`;
