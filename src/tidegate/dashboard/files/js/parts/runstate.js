// The state of a run. One that is complete although some of its jobs failed says so.

import { html } from "../view.js";
import { Badge } from "./badge.js";
import { number } from "./format.js";

export function RunState({ run }) {
  const isFlawed = run.status === "completed" && run.failed_jobs > 0;
  return isFlawed ? html`<${Badge}
    state="completed"
    kind="warn"
    label=${`completed, ${number(run.failed_jobs)} failed`}
  />` : html`<${Badge} state=${run.status} />`;
}
