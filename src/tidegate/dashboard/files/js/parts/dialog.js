// Modal dialog: the browser keeps the focus inside, and Escape closes it.

import { html } from "../view.js";

/** `label` names it, or `labelledBy` is the id of its heading; `mayClose` is false while a request is in progress. */
export function Dialog({ label, labelledBy, look = "", mayClose = true, onClose, children }) {
  // Closed by us at once: the browser reports its own closing later, and a key that opens the dialog again in between
  // would have no effect.
  const cancel = (event) => {
    event.preventDefault();
    if (mayClose) onClose();
  };
  return html`<dialog
    class="dialog ${look}"
    aria-label=${label}
    aria-labelledby=${labelledBy}
    ref=${(dialog) => dialog && !dialog.open && dialog.showModal()}
    onClose=${onClose}
    onCancel=${cancel}
  >
    ${children}
  </dialog>`;
}
