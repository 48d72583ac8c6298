// An action: a button, a dialog that states the consequence, and a message with the result.

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
 * @param label text of the button; `name` is its accessible name if the text is not specific ("Retry job 12")
 * @param question the dialog's heading: "Cancel run 12?"
 * @param consequence what the action does, in one or two sentences
 * @param method path: the request; `path` may be a function of the dialog's fields, as `body`
 * @param body sent as JSON; a function of the dialog's fields ({name: value}) if `children` has fields
 * @param confirm text of the dialog's button; `label` by default
 * @param danger whether the action cannot be undone
 * @param done message after success: a text, or a function of the answer
 * @param onDone called with the answer
 * @param next for actions in batches: a function of all answers so far; the body of the next request, or null at the end.
 *   `done` and `onDone` then get the list of answers; after a failure, the action continues with the next click
 * @param whyNot why the action is not possible now; shown instead of the button
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
  useEffect(() => keepFocus, []); // the object may disappear, with its button and dialog
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
  const answers = useRef([]);
  const submit = async (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target));
    work(true);
    complain(null);
    try {
      const answer = await requested(asked, fields, answers.current);
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

/** The answer; for an action in batches, all answers. */
async function requested({ method = "POST", path, body, next }, fields, answers) {
  let wanted = (answers.length && next(answers)) || told(body, fields);
  for (;;) {
    const answer = await call(method, told(path, fields), wanted);
    if (!next) return answer;
    answers.push(answer);
    wanted = next(answers);
    if (wanted === null) return answers;
  }
}

const told = (value, about) => (typeof value === "function" ? value(about) : value);
