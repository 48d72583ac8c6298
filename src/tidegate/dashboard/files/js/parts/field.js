// Form fields with a label and a hint.

import { html, useId } from "../view.js";

/**
 * A field with its label. `name` is its key in a dialog's `body`. `kind`: text, password, number, datetime-local,
 * area, check or select (then `options`: [[value, text]…]). Other properties are passed to the element.
 */
export function Field({ label, name, kind = "text", hint, options, hideLabel = false, ...rest }) {
  const id = useId();
  const told = hint ? `${id}-hint` : undefined;
  const given = { id, name, "aria-describedby": told, ...rest };
  if (kind === "check") {
    return html`<div class="field field-check">
      <input type="checkbox" ...${given} /><label for=${id}>${label}</label><${Hint} id=${told} text=${hint} />
    </div>`;
  }
  return html`<div class="field">
    <label for=${id} class=${hideLabel ? "unseen" : ""}>${label}</label>
    ${kind === "area" && html`<textarea rows="3" ...${given}></textarea>`}
    ${kind === "select" && html`<select ...${given}>
      ${options.map(([value, text]) => html`<option value=${value} selected=${value === rest.value}>${text}</option>`)}
    </select>`}
    ${kind !== "area" && kind !== "select" && html`<input type=${kind} autocomplete="off" ...${given} />`}
    <${Hint} id=${told} text=${hint} />
  </div>`;
}

const Hint = ({ id, text }) => (text ? html`<p class="field-hint" id=${id}>${text}</p>` : null);

/** A choice of one option, as a row of buttons: `options` is [[value, text]…]. */
export function Choice({ label, options, value, onChoose }) {
  return html`<div class="choice" role="group" aria-label=${label}>
    ${options.map(([one, text]) => html`<button
      key=${one}
      type="button"
      aria-pressed=${one === value ? "true" : "false"}
      onClick=${() => onChoose(one)}
    >
      ${text}
    </button>`)}
  </div>`;
}
