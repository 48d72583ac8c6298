// Toasts: short messages, which screen readers announce.

import { shared, useShared } from "../state.js";
import { html } from "../view.js";
import { Icon } from "./icon.js";

const SHOWN_FOR_MS = 7000;
const shown = shared([]);
let number = 0;

/** Show a message. `kind`: good, info, warning or critical. */
export function tell(text, kind = "good") {
  const toast = { id: (number += 1), text, kind };
  shown.set([...shown.get().slice(-2), toast]);
  setTimeout(() => forget(toast), SHOWN_FOR_MS);
}

/** The container of the messages; once per page. */
export function Toasts() {
  const toasts = useShared(shown);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.map((toast) => html`<div key=${toast.id} class="toast toast-${toast.kind}">
      <${Icon} name=${toast.kind === "good" ? "check" : "info"} />
      <span>${toast.text}</span>
      <button type="button" class="button-plain" aria-label="Dismiss" onClick=${() => forget(toast)}>
        <${Icon} name="cross" size=${14} />
      </button>
    </div>`)}
  </div>`;
}

const forget = (toast) => shown.set(shown.get().filter((one) => one !== toast));
