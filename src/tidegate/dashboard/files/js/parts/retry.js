// One failed job again: the same button wherever failures are shown.

import { html } from "../view.js";
import { kindName } from "../words.js";
import { Action } from "./action.js";

/** The last column of a table of jobs, or of failures, which have no state: those that failed can be tried again. */
export const retryColumn = (onDone) => ({
  head: html`<span class="unseen">Action</span>`,
  number: true,
  shrink: true,
  cell: (job) => (job.status ?? "failed") === "failed" && html`<${RetryJob} job=${job} onDone=${onDone} />`,
});

function RetryJob({ job, onDone }) {
  const id = job.job_id ?? job.id;
  return html`<${Action}
    small
    label="Retry"
    name=${`Retry job ${id}`}
    question=${`Retry job ${id}?`}
    consequence=${`The call (${kindName(job.kind)} of ${job.resource}) is made once more, and its run goes on.`}
    path=${`/v1/jobs/${id}/retry`}
    done=${`Job ${id} is tried again.`}
    onDone=${onDone}
  />`;
}
