// The button that retries a failed job, for all tables of failures.

import { html } from "../view.js";
import { kindName } from "../words.js";
import { Action } from "./action.js";

/** The last column of a table of jobs or failures; failed jobs can be retried. Rows without a state are failures. */
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
    consequence=${`The call (${kindName(job.kind)} of ${job.resource}) is made again, and its run continues.`}
    path=${`/v1/jobs/${id}/retry`}
    done=${`Job ${id} is retried.`}
    onDone=${onDone}
  />`;
}
