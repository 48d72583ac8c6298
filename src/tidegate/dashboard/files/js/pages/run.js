// One run: its progress, what it waits for, its failures, and all its calls.

import { useRun, useTopic } from "../live.js";
import {
  Action,
  clockTime,
  count,
  Lasted,
  Notice,
  number,
  Page,
  percent,
  Problem,
  Progress,
  RunState,
  Section,
  Table,
  Tile,
  Tiles,
  When,
} from "../parts/index.js";
import { Jobs } from "../parts/jobs.js";
import { retryColumn } from "../parts/retry.js";
import { html, useEffect } from "../view.js";
import { ACTIVE, endedJobs, kindName, triggerName, whyWaits } from "../words.js";

const CANCELED =
  "No further call is started; the results of calls in progress are ignored. " +
  "A canceled run cannot be resumed; what it collected stays.";
const BACK = { href: "#/runs", label: "Runs" };

export function Run({ rest: [id] }) {
  const live = useRun(id);
  const run = live.value;
  useTakenUpAgain(run, live.reload);
  if (!run) return html`<${Page} title=${`Run ${id}`} back=${BACK}>
    <${Problem} of=${live.problem} retry=${live.reload} />
  <//>`;
  const isActive = ACTIVE.includes(run.status);
  const shownLive = isActive ? live : undefined;
  return html`<${Page}
    title=${run.login}
    back=${BACK}
    badge=${html`<${RunState} run=${run} />`}
    lead=${leadOf(run)}
    live=${shownLive}
    actions=${html`<${Actions} run=${run} isActive=${isActive} reload=${live.reload} />`}
  >
    <${Problem} of=${live.problem} retry=${live.reload} />
    <${Waits} waits=${run.waits} />
    ${run.last_error && run.failed_jobs > 0 && html`<${Notice}
      kind="critical"
      title=${count(run.failed_jobs, "job failed", "jobs failed")}
    >
      Latest reason: ${run.last_error}
    <//>`}
    <${Figures} run=${run} />
    <${Kinds} run=${run} />
    <${Failures}
      title="Failed jobs"
      failures=${run.failures}
      all=${run.failed_jobs}
      canRetry=${run.status !== "canceled"}
      reload=${live.reload}
    />
    <${Withheld} of=${run.unavailable} />
    <${Jobs} runId=${run.id} moved=${`${run.status} ${endedJobs(run)} ${run.total_jobs}`} />
  <//>`;
}

/** A run that has ended is not watched, unless it is resumed. */
function useTakenUpAgain(run, follow) {
  const active = useTopic("overview").value?.active;
  const goesOn = run !== null && !ACTIVE.includes(run.status) && (active ?? []).some((one) => one.id === run.id);
  useEffect(() => {
    if (goesOn) follow();
  }, [goesOn]);
}

function leadOf(run) {
  const started = html`started ${triggerName(run.triggered_by)} <${When} at=${run.created_at} />`;
  const pool = html`pool <span class="mono">${run.pool}</span>`;
  return html`Run ${run.id} · ${run.source} · ${started} · ${pool}${optionsOf(run.options)}`;
}

/** The options of the run that differ from the default. */
function optionsOf({ include, since, full }) {
  const options = [include && `only ${include.join(", ")}`, since && `since ${since}`, full && "complete collection"];
  return options.filter(Boolean).map((option) => ` · ${option}`).join("");
}

function Actions({ run, isActive, reload }) {
  const failed = run.failed_jobs;
  return html`
    ${failed > 0 && run.status !== "canceled" && html`<${Action}
      icon="retry"
      label="Retry failed"
      name="Retry all failed jobs"
      question=${`Retry ${count(failed, "failed job")} of run ${run.id}?`}
      consequence="Each job gets a new set of attempts. The run continues until they end."
      path=${`/v1/runs/${run.id}/retry`}
      done=${({ jobs }) => `${count(jobs, "job is", "jobs are")} tried again.`}
      onDone=${reload}
    />`}
    ${isActive && html`<${Action}
      danger
      label="Cancel run"
      question=${`Cancel run ${run.id} of ${run.login}?`}
      consequence=${CANCELED}
      path=${`/v1/runs/${run.id}/cancel`}
      done=${`Run ${run.id} is canceled.`}
      onDone=${reload}
    />`}`;
}

function Waits({ waits }) {
  if (waits === null) return html`<${Notice} kind="warning" title="The reason for waiting is unknown now">
    The server that has this information does not answer.
  <//>`;
  if (waits.length === 0) return null;
  return html`<${Notice} kind="info" title="Its next calls wait">
    <ul>${waits.map((wait) => html`<li key=${`${wait.credential} ${wait.bucket}`}>
      ${wait.credential ?? "No credential"} (${wait.bucket}): ${whyWaits(wait.reason)}
      ${wait.opens_at && html`, opens <${When} at=${wait.opens_at} /> at ${clockTime(wait.opens_at)}`}
    </li>`)}</ul>
  <//>`;
}

function Figures({ run }) {
  const done = endedJobs(run);
  return html`<${Tiles} label="Run at a glance">
    <${Tile}
      label="Done"
      value=${percent(done, run.total_jobs)}
      note=${`${number(done)} of ${count(run.total_jobs, "job")}`}
    />
    <${Tile}
      label="Failed"
      value=${number(run.failed_jobs)}
      note=${run.canceled_jobs ? `${number(run.canceled_jobs)} canceled` : "jobs"}
      kind=${run.failed_jobs ? "critical" : undefined}
    />
    <${Tile}
      label="Documents"
      value=${number(run.documents)}
      note=${run.skipped_items
        ? `${count(run.skipped_items, "item")} skipped: could not be read`
        : "read, and written where new"}
    />
    <${Tile} label="Calls" value=${number(run.calls)} note=${`${number(run.unchanged_calls)} free: nothing changed`} />
    <${Tile}
      label="Took"
      value=${html`<${Lasted} from=${run.started_at} to=${run.completed_at} none="not started" />`}
      note=${run.completed_at ? html`ended <${When} at=${run.completed_at} />` : "under way"}
    />
  <//>`;
}

function Kinds({ run }) {
  const ended = (kind) => kind.succeeded + kind.unavailable + kind.failed + kind.canceled;
  const columns = [
    { head: "Kind", cell: (kind) => kindName(kind.kind) },
    {
      head: "Progress",
      wide: true,
      cell: (kind) => html`<${Progress}
        done=${ended(kind)}
        failed=${kind.failed}
        most=${kind.total}
        label=${`Progress of ${kindName(kind.kind)}`}
      />`,
    },
    { head: "Jobs", number: true, cell: (kind) => number(kind.total) },
    ...["waiting", "running", "retrying", "succeeded", "unavailable", "failed", "canceled"].map((state) => ({
      head: HEADS[state] ?? state[0].toUpperCase() + state.slice(1),
      number: true,
      hideOnPhone: state !== "failed",
      cell: (kind) => html`<span class=${kind[state] === 0 ? "quiet" : state === "failed" ? "reason" : ""}>
        ${number(kind[state])}
      </span>`,
    })),
  ];
  return html`<${Section} title="Progress by kind of job">
    <${Table}
      caption="Progress by kind of job"
      columns=${columns}
      rows=${run.kinds}
      rowKey=${(kind) => kind.kind}
      empty="It has no jobs yet."
    />
  <//>`;
}

const HEADS = { retrying: "To retry", unavailable: "Withheld" };

function Failures({ title, failures, all, canRetry, reload }) {
  if (failures.length === 0) return null;
  const columns = [
    { head: "Job", shrink: true, cell: (job) => `#${job.job_id}` },
    { head: "Kind", cell: (job) => kindName(job.kind) },
    { head: "Resource", hideOnPhone: true, cell: (job) => html`<span class="mono">${job.resource}</span>` },
    { head: "Reason", wide: true, cell: (job) => html`<span class="reason">${job.reason}</span>` },
  ];
  if (canRetry) columns.push(retryColumn(reload));
  const note = all > failures.length ? `The first ${failures.length} of ${number(all)}.` : null;
  return html`<${Section} title=${title} note=${note}>
    <${Table} caption=${title} columns=${columns} rows=${failures} rowKey=${(job) => job.job_id} />
  <//>`;
}

function Withheld({ of }) {
  if (of.length === 0) return null;
  const columns = [
    { head: "Kind", cell: (job) => kindName(job.kind) },
    { head: "Resource", cell: (job) => html`<span class="mono">${job.resource}</span>` },
    { head: "The upstream says", wide: true, cell: (job) => job.reason },
  ];
  return html`<${Section} title="Withheld by the upstream" note="Not failures: the run counts them as done.">
    <${Table} caption="Withheld by the upstream" columns=${columns} rows=${of} rowKey=${(job) => job.job_id} />
  <//>`;
}
