// Overview: what needs attention, active runs, waiting jobs, recent failures and recent activity.

import { pointsOf, useHistory } from "../history.js";
import { useTopic } from "../live.js";
import {
  Badge,
  Chart,
  ChartRange,
  Columns,
  count,
  Empty,
  Icon,
  Notice,
  number,
  Page,
  Problem,
  Progress,
  Section,
  Table,
  Tile,
  Tiles,
  When,
  useChartRange,
} from "../parts/index.js";
import { retryColumn } from "../parts/retry.js";
import { Unknown } from "../parts/unknown.js";
import { html, useState } from "../view.js";
import { endedJobs, kindName, whyWaits } from "../words.js";

const SERIES = ["jobs/done", "jobs/failed", "jobs/pending", "jobs/waiting", "quota/"];
const MOST_LINES = 8;
const MOST_MATTERS = 5;
const MOST_FAILED = 4;
const OPENS_WHEN = { no_credential: "one is added", concurrency: "one of them ends", probing: "the answer arrives" };
const MOST_QUOTAS = 6;

export function Overview() {
  const topic = useTopic("overview");
  const now = topic.value;
  return html`<${Page} title="Overview" lead="Active runs, waiting jobs and recent failures." live=${topic}>
    <${Problem} of=${topic.problem} />
    ${now && html`<${Attention} of=${now} />`}
    <${Figures} now=${now} />
    <${Columns}>
      <${Running} now=${now} />
      <${Waiting} now=${now} />
    <//>
    <${Failed} jobs=${now && now.failed} />
    <${Lately} />
  <//>`;
}

function Attention({ of }) {
  const { attention, unknown } = of;
  const [isAll, showAll] = useState(false);
  const shown = isAll ? attention : attention.slice(0, MOST_MATTERS);
  const nothing = attention.length === 0 && unknown.length === 0;
  return html`<section class="attention" aria-label="Attention">
    <p class="unseen" aria-live="polite">${count(attention.length, "item")} for your attention</p>
    ${nothing && html`<${Notice} kind="good" title="No problems">Nothing needs your attention.<//>`}
    ${shown.map((one) => html`<${Notice}
      key=${one.text}
      kind=${one.severity}
      actions=${one.link && html`<a class="button button-small" href=${one.link} aria-label=${`View: ${one.text}`}>
        View<${Icon} name="arrow" size=${14} />
      </a>`}
    >
      ${one.text}${one.until && html` <span class="quiet">opens <${When} at=${one.until} /></span>`}
    <//>`)}
    ${shown.length < attention.length && html`<button type="button" class="button" onClick=${() => showAll(true)}>
      Show all ${attention.length}
    </button>`}
    <${Unknown} of=${of} />
  </section>`;
}

function Figures({ now }) {
  const runs = now?.runs;
  const jobs = now?.jobs;
  const dead = now?.dead && now.dead.reduce((sum, one) => sum + (one.count ?? 0), 0);
  const down = now?.servers.filter((one) => !one.is_up) ?? [];
  const active = activeRuns(runs);
  return html`<${Tiles} label="Current figures">
    <${Tile}
      label="Active runs"
      value=${number(active)}
      note=${runs && `${number(runs.completed)} completed in 24 h`}
      href="#/runs?state=active"
    />
    <${Tile}
      label="Jobs waiting"
      value=${number(jobs && jobs.waiting + jobs.retrying)}
      note=${jobs && (jobs.retrying ? `${number(jobs.retrying)} to be retried` : "of active runs")}
    />
    <${Tile}
      label="Jobs running"
      value=${number(jobs?.running)}
      note=${jobs && `${number(jobs.succeeded)} of ${number(jobs.total)} done`}
    />
    <${Tile}
      label="Failed runs"
      value=${number(runs?.failed)}
      note="in the last 24 h"
      kind=${runs?.failed ? "critical" : undefined}
      href="#/runs?state=failed"
    />
    <${Tile}
      label="Dead letters"
      value=${number(dead)}
      note=${dead ? "wait for a decision" : "none"}
      kind=${dead ? "critical" : undefined}
      href="#/dead"
    />
    <${Tile}
      label="Processes"
      value=${number(now?.processes)}
      note=${leaderNote(now)}
      kind=${now && !now.leader ? "warning" : undefined}
      href="#/runtime"
    />
    <${Tile}
      label="Servers up"
      value=${now ? `${now.servers.length - down.length} of ${now.servers.length}` : "–"}
      note=${down.length ? `${namesOf(down, "name")} away` : now && namesOf(now.servers, "product")}
      kind=${down.length ? "critical" : undefined}
      href="#/runtime"
    />
  <//>`;
}

const namesOf = (servers, property) => servers.map((one) => one[property]).join(", ");

const activeRuns = (runs) => runs && runs.planning + runs.running + runs.finalizing;

function leaderNote(now) {
  if (!now) return null;
  // host.pid.random: the last part distinguishes two processes with one pid, which does not matter here.
  return now.leader ? html`<span title=${now.leader}>
    led by ${now.leader.replace(/\.[^.]*$/, "")}
  </span>` : now.processes === null ? "leader unknown" : "no leader";
}

function Running({ now }) {
  const runs = now && now.active;
  const columns = [
    {
      head: "Run",
      cell: (run) => html`<span class="clip clip-name" title=${run.login}>
        <a href=${`#/runs/${run.id}`}>${run.login}</a> <span class="quiet">#${run.id}</span>
      </span>`,
    },
    { head: "State", shrink: true, cell: (run) => html`<${Badge} state=${run.status} />` },
    {
      head: "Progress",
      cell: (run) => html`<${Progress}
        done=${endedJobs(run)}
        failed=${run.failed_jobs}
        most=${run.total_jobs}
        label=${`Progress of run ${run.id}`}
      />`,
    },
    {
      head: "Jobs",
      number: true,
      hideOnPhone: true,
      cell: (run) => `${number(endedJobs(run))} / ${number(run.total_jobs)}`,
    },
  ];
  const active = activeRuns(now?.runs);
  const nothing = html`<${Empty} title="No active runs" command="tidegate collect LOGIN">
    Start a run on <a href="#/runs">the page of runs</a>, with the API, or with a command:
  <//>`;
  return html`<${Section}
    title="Active runs"
    note=${active > MOST_LINES ? `The newest ${MOST_LINES} of ${number(active)}.` : null}
    aside=${html`<a href="#/runs">All runs</a>`}
  >
    <${Table} caption="Active runs" columns=${columns} rows=${runs && runs.slice(0, MOST_LINES)} empty=${nothing} />
  <//>`;
}

function Waiting({ now }) {
  const columns = [
    { head: "Jobs", number: true, shrink: true, cell: (wait) => number(wait.jobs) },
    { head: "Wait because", wide: true, cell: (wait) => html`<${Why} wait=${wait} />` },
    {
      head: "Until",
      number: true,
      cell: (wait) => html`<${When}
        at=${wait.until}
        none=${OPENS_WHEN[wait.reason] ?? "not known"}
      />`,
    },
  ];
  const waits = now && now.waits;
  return html`<${Section}
    title="Waiting jobs"
    note=${waits?.length > MOST_LINES ? `The first ${MOST_LINES} of ${number(waits.length)}.` : null}
  >
    <${Table}
      caption="Waiting jobs"
      columns=${columns}
      rows=${waits && waits.slice(0, MOST_LINES)}
      rowKey=${(wait) => `${wait.pool} ${wait.bucket}`}
      empty=${nothingKeeps(now?.jobs)}
    />
  <//>`;
}

/** Calls can be made; jobs may still wait for earlier jobs or for the end of a pause. */
function nothingKeeps(jobs) {
  const { waiting = 0, retrying = 0 } = jobs ?? {};
  if (waiting + retrying === 0) return "Nothing waits.";
  const turn = waiting > 0 && `${count(waiting, "job")} waiting for earlier calls.`;
  const pause = retrying > 0 && `${count(retrying, "job")} failed and will be retried after a pause.`;
  return ["Calls can be made.", turn, pause].filter(Boolean).join(" ");
}

function Why({ wait }) {
  const names = wait.credentials.map((one) => one.credential);
  const some = names.length > 2 ? count(names.length, "credential") : names.join(", ");
  const holders = some || `pool ${wait.pool}`;
  return html`<div>${whyWaits(wait.reason)}</div><div class="quiet">
    <a href="#/quotas">${holders}</a>, ${wait.bucket}
  </div>`;
}

function Failed({ jobs }) {
  const columns = [
    { head: "Run", cell: (job) => html`<a class="clip clip-name" href=${`#/runs/${job.run_id}`}>${job.login}</a>` },
    {
      head: "Job",
      cell: (job) => html`<span title=${job.resource}>
        ${kindName(job.kind)} <span class="quiet">${job.resource}</span>
      </span>`,
      hideOnPhone: true,
    },
    { head: "Reason", wide: true, cell: (job) => html`<span class="reason">${job.reason}</span>` },
    { head: "When", number: true, hideOnPhone: true, cell: (job) => html`<${When} at=${job.at} />` },
    retryColumn(),
  ];
  return html`<${Section}
    title="Recent failures"
    note=${jobs?.length > MOST_FAILED ? `The latest ${MOST_FAILED}.` : null}
  >
    <${Table}
      caption="Recent failures"
      columns=${columns}
      rows=${jobs && jobs.slice(0, MOST_FAILED)}
      rowKey=${(job) => job.job_id}
      empty="No job failed."
    />
  <//>`;
}

function Lately() {
  const range = useChartRange();
  const { series, problem } = useHistory(SERIES, range.length);
  const chosen = (pairs) => series && pairs.map(([label, name]) => ({ label, points: pointsOf(series, name) }));
  const quotas = series && series.filter((one) => one.name.startsWith("quota/"));
  const labelled = ({ name, points }) => ({ label: name.slice("quota/".length), points });
  const drawn = quotas && quotas.slice(0, MOST_QUOTAS).map(labelled);
  return html`<${Section} title="Recent activity" aside=${html`<${ChartRange} range=${range} />`} plain>
    <${Problem} of=${problem} />
    <div class="charts">
      <div class="card">
        <${Chart} title="Jobs done" unit="/s" series=${chosen([["done", "jobs/done"], ["failed", "jobs/failed"]])} />
      </div>
      <div class="card">
        <${Chart}
          title="Jobs pending"
          unit="jobs"
          series=${chosen([["pending", "jobs/pending"], ["waiting for a permit", "jobs/waiting"]])}
          isStep
        />
      </div>
      <div class="card">
        <${Chart}
          title=${quotas?.length > MOST_QUOTAS ? `Quota left: ${MOST_QUOTAS} of ${quotas.length}` : "Quota left"}
          unit="calls"
          series=${drawn}
          isStep
          empty="A credential’s quota appears with its first call."
        />
      </div>
    </div>
  <//>`;
}
