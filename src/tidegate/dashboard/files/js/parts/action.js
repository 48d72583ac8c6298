// Something that can be done: a button, a question with its consequence, and what came of it.

import { call, useWhyNotAct } from "../api.js";
import { html, useEffect, useId, useRef, useState } from "../view.js";
import { Dialog } from "./dialog.js";
import { sentence } from "./format.js";
import { Icon } from "./icon.js";
import { Notice } from "./notice.js";
import { keepFocus } from "./page.js";
import { tell } from "./toast.js";

/**
 * A button that asks before it acts.
 * @param label what the button says; `name` is what it is called where that says too little ("Retry job 12")
 * @param question the dialog's heading: "Cancel run 12?"
 * @param consequence what will happen, in a sentence or two
 * @param method path: what is called; `path` may be a function of the dialog's fields, as `body`
 * @param body sent as JSON; a function of the dialog's fields ({name: value}) where `children` are such fields
 * @param confirm what the button of the dialog says; `label` by default
 * @param danger what cannot be taken back
 * @param done what is said in the end: a text, or a function of the answer
 * @param onDone told of the answer
 * @param whyNot a reason for which it cannot be done now; it is shown instead
 */
export function Action({ label, name, icon, primary = false, small = false, whyNot, ...asked }) {
  const forbidden = useWhyNotAct();
  const reason = forbidden ?? whyNot ?? null;
  const [isOpen, open] = useState(false);
  const button = useRef(null);
  const note = useId();
  const close = () => {
    open(false);
    requestAnimationFrame(() => button.current?.focus());
  };
  useEffect(() => keepFocus, []); // what was acted upon goes, and its button or dialog with it
  const ask = () => (reason ? tell(reason, "info") : open(true));
  const looks = { "button-primary": primary, "button-danger": asked.danger, "button-small": small };
  const classes = ["button", ...Object.keys(looks).filter((look) => looks[look])].join(" ");
  return html`<button
      ref=${button}
      type="button"
      class=${classes}
      aria-label=${name}
      aria-haspopup="dialog"
      aria-disabled=${reason ? "true" : undefined}
      aria-describedby=${reason ? note : undefined}
      title=${reason ?? undefined}
      onClick=${ask}
    >
      ${icon && html`<${Icon} name=${icon} />`}${label}
    </button>
    ${reason && html`<span class="unseen" id=${note}>${reason}</span>`}
    ${isOpen && html`<${Question} ...${asked} confirm=${asked.confirm ?? label} close=${close} />`}`;
}

function Question({ question, consequence, danger = false, confirm, close, children, ...asked }) {
  const heading = useId();
  const [problem, complain] = useState(null);
  const [isBusy, work] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target));
    work(true);
    complain(null);
    try {
      const answer = await call(asked.method ?? "POST", told(asked.path, fields), told(asked.body, fields));
      tell(told(asked.done, answer) ?? `${confirm}: done.`);
      close();
      asked.onDone?.(answer);
    } catch (found) {
      complain(found);
      work(false);
    }
  };
  return html`<${Dialog} labelledBy=${heading} mayClose=${!isBusy} onClose=${close}>
    <form onSubmit=${submit}>
      <h2 id=${heading}>${question}</h2>
      ${consequence && html`<p class="dialog-text">${consequence}</p>`}
      ${children && html`<div class="fields">${children}</div>`}
      ${problem && html`<${Notice} kind="critical" title=${problem.title}>${sentence(problem.message)}<//>`}
      <div class="dialog-buttons">
        <button type="button" class="button" disabled=${isBusy} onClick=${close} autofocus=${!children}>Not now</button>
        <button
          type="submit"
          class=${danger ? "button button-danger-full" : "button button-primary"}
          disabled=${isBusy}
        >
          ${isBusy ? "Working…" : confirm}
        </button>
      </div>
    </form>
  <//>`;
}

const told = (value, about) => (typeof value === "function" ? value(about) : value);
