// The jobs of a run, page by page, and the workers that executed them.

import { now } from "../clock.js";
import { useFetched, useSlowly } from "../live.js";
import { html, useState } from "../view.js";
import { jobState, kindName } from "../words.js";
import { Badge } from "./badge.js";
import { Choice } from "./field.js";
import { moment, number } from "./format.js";
import { Icon } from "./icon.js";
import { Problem } from "./notice.js";
import { Section } from "./page.js";
import { Pager, usePages } from "./pager.js";
import { retryColumn } from "./retry.js";
import { Table } from "./table.js";
import { Lasted, When } from "./when.js";

const STATES = [
  ["", "All"],
  ["waiting", "Waiting"],
  ["running", "Running"],
  ["succeeded", "Succeeded"],
  ["unavailable", "Withheld"],
  ["failed", "Failed"],
  ["canceled", "Canceled"],
];
const OF_WAITING = ["ready", "enqueued"];
const AT_ONCE = 50;
const ASKED_AGAIN_MS = 2000;

/** `moved` changes with the run: then the current page is requested again. */
export function Jobs({ runId, moved }) {
  const [state, choose] = useState("");
  const [opened, open] = useState(null);
  const pages = usePages(pathOf(runId, state));
  const { value, problem, reload } = useFetched(pages.path, [useSlowly(moved, ASKED_AGAIN_MS)]);
  const turn = (id) => open((last) => (last === id ? null : id));
  return html`<${Section}
    title="Jobs"
    note="Each job is one call. Oldest first."
    aside=${html`<${Choice} label="State of jobs" options=${STATES} value=${state} onChoose=${choose} />`}
  >
    <${Problem} of=${problem} retry=${reload} />
    <${Table}
      caption="Jobs"
      columns=${columnsOf(opened, turn, reload)}
      rows=${value && value.jobs}
      empty=${state ? "No job is in this state." : "It has no jobs yet."}
      detail=${(job) => job.id === opened && html`<${Detail} job=${job} />`}
    />
    <${Pager} pages=${pages} next=${value?.next} label="jobs" />
  <//>`;
}

function columnsOf(opened, turn, reload) {
  return [
    {
      head: "Job",
      shrink: true,
      cell: (job) => html`<button
        type="button"
        class="button-plain button-opens"
        aria-expanded=${job.id === opened ? "true" : "false"}
        aria-label=${`Details of job ${job.id}`}
        onClick=${() => turn(job.id)}
      >
        <${Icon} name=${job.id === opened ? "down" : "right"} size=${14} />#${job.id}
      </button>`,
    },
    {
      head: "State",
      shrink: true,
      cell: (job) => html`<${Badge} state=${job.status} label=${jobState(job.status)} />`,
    },
    {
      head: "Call",
      wide: true,
      cell: (job) => html`<span class="call">
        ${kindName(job.kind)} <span class="mono">${job.resource}</span>
        ${job.page !== "first" && html` <span class="quiet">${job.page}</span>`}
      </span>`,
    },
    { head: "Tries", number: true, hideOnPhone: true, cell: (job) => `${job.attempts} / ${job.max_attempts}` },
    { head: "When", number: true, hideOnPhone: true, cell: (job) => html`<${Moment} of=${job} />` },
    retryColumn(reload),
  ];
}

/** When a job ended or can be retried; an overdue job waits for a permit. */
function Moment({ of }) {
  if (of.completed_at) return html`<${When} at=${of.completed_at} />`;
  const isPaused = of.status === "ready" && moment(of.not_before) > now();
  return isPaused ? html`<${When} at=${of.not_before} />` : html`<span class="quiet">–</span>`;
}

function Detail({ job }) {
  const { value, problem } = useFetched(`/v1/jobs/${job.id}`, [job.status, job.attempts]);
  return html`<div class="stack">
    <dl class="facts">
      <div><dt>Page</dt><dd class="mono">${job.page || "–"}</dd></div>
      <div><dt>Created</dt><dd><${When} at=${job.created_at} /></dd></div>
      <div><dt>Begun</dt><dd><${When} at=${job.started_at} /></dd></div>
      <div>
        <dt>Took</dt><dd>
          ${job.completed_at ? html`<${Lasted} from=${job.started_at} to=${job.completed_at} />` : "–"}
        </dd>
      </div>
      <div><dt>Tried</dt><dd>${number(job.attempts)} of ${number(job.max_attempts)} times</dd></div>
    </dl>
    ${job.last_error && html`<p class="reason">${job.last_error}</p>`}
    <${Problem} of=${problem} />
    ${value && (value.executions.length > 0 ? html`<${Executions} of=${value.executions} />` : html`<p class="quiet">
      No execution has ended yet.
    </p>`)}
    ${value && value.unreported_claims > 0 && html`<p class="quiet">
      Claims without a result: ${number(value.unreported_claims)}. The worker died or lost its lease, or the run ended.
    </p>`}
  </div>`;
}

function Executions({ of }) {
  const columns = [
    { head: "Execution", shrink: true, cell: (one) => `${one.fence}.` },
    { head: "Credential", cell: (one) => one.credential },
    { head: "Began", number: true, cell: (one) => html`<${When} at=${one.started_at} />` },
    { head: "Status", number: true, cell: (one) => one.call?.status ?? "–" },
    { head: "Call", number: true, cell: called },
    { head: "Outcome", shrink: true, cell: (one) => html`<${Badge} state=${one.outcome ?? "running"} />` },
    { head: "Next try", number: true, cell: (one) => html`<${When} at=${one.next_try_at} />` },
    { head: "Request", wide: true, cell: (one) => html`<${Sent} of=${one} />` },
  ];
  return html`<${Table} caption="Executions of the job" columns=${columns} rows=${of} rowKey=${(one) => one.fence} />`;
}

/** How long the request took. */
function called({ call, ended_at }) {
  if (call) return `${number(call.duration_ms)} ms`;
  return ended_at ? "not sent" : "–";
}

/** The request of an execution, its identifier at the upstream, and the reason of the outcome. */
function Sent({ of }) {
  const { call, reason } = of;
  return html`<div class="stack">
    ${call && html`<span class="mono">${call.method} ${call.url}</span>`}
    ${call?.request_id && html`<span class="quiet mono">${call.request_id}</span>`}
    ${reason && html`<span>${reason}</span>`}
  </div>`;
}

function pathOf(runId, state) {
  const states = state === "waiting" ? OF_WAITING : state ? [state] : [];
  return `/v1/runs/${runId}/jobs?${new URLSearchParams([...states.map((one) => ["state", one]), ["limit", AT_ONCE]])}`;
}
