// All runs, newest first, filtered by state, subject and time, in pages; the first page is live.

import { useFetched, useSettled, useSlowly, useTopic } from "../live.js";
import {
  Action,
  Choice,
  Empty,
  Field,
  Lasted,
  number,
  Page,
  Pager,
  Problem,
  Progress,
  RunState,
  Section,
  Table,
  TimeRange,
  usePages,
  useTimeRange,
  When,
} from "../parts/index.js";
import { go, refine } from "../router.js";
import { html, useEffect, useState } from "../view.js";
import { ACTIVE, endedJobs } from "../words.js";

const STATES = [
  ["", "All"],
  ["active", "Active"],
  ["completed", "Completed"],
  ["failed", "Failed"],
  ["canceled", "Canceled"],
];
const ASKED_AGAIN_MS = 3000;

export function Runs({ query }) {
  const [state, choose] = useState(query.get("state") ?? "");
  const [text, typed] = useState(query.get("search") ?? "");
  const range = useTimeRange(query);
  const search = useSettled(text.trim());
  const pages = usePages(pathOf(state, search, range));
  const isFiltered = Boolean(state || search || !range.isWhole);
  const isPlain = !isFiltered && pages.isFirst;
  const topic = useTopic("runs");
  const moved = useSlowly(useTopic("overview").value?.at, ASKED_AGAIN_MS);
  // A filtered list is requested again after changes; the stream delivers the unfiltered first page.
  const fetched = useFetched(isPlain ? null : pages.path, [pages.isFirst ? moved : null]);
  const shown = isPlain ? topic : fetched;
  const kept = new URLSearchParams({ ...(state && { state }), ...(search && { search }), ...range.query }).toString();
  useEffect(() => refine(new URLSearchParams(kept)), [kept]);
  return html`<${Page}
    title="Runs"
    lead="A run is one collection of a subject, such as a user or a repository, or one crawl of a site."
    live=${pages.isFirst ? topic : undefined}
    actions=${html`<${StartRun} />`}
  >
    <${Section} title="Runs, newest first" aside=${html`<${Filter} ...${{ state, choose, text, typed, range }} />`}>
      <${Problem} of=${shown.problem} retry=${fetched.reload} />
      <${Table}
        caption="Runs"
        columns=${COLUMNS}
        rows=${shown.value && shown.value.runs}
        empty=${html`<${Nothing} isFiltered=${isFiltered} hasMore=${Boolean(shown.value?.next)} />`}
      />
      <${Pager} pages=${pages} next=${shown.value?.next} label="runs" />
    <//>
  <//>`;
}

const COLUMNS = [
  { head: "Run", cell: (run) => html`<a href=${`#/runs/${run.id}`}>#${run.id}</a>`, shrink: true },
  {
    head: "Subject",
    cell: (run) => html`<span class="clip clip-name" title=${run.login}>
      ${run.login}${run.source === "github" ? null : html` <span class="quiet">${run.source}</span>`}
    </span>`,
  },
  { head: "State", shrink: true, cell: (run) => html`<${RunState} run=${run} />` },
  {
    head: "Progress",
    wide: true,
    cell: (run) => html`<${Progress}
      done=${endedJobs(run)}
      failed=${run.failed_jobs}
      most=${run.total_jobs}
      label=${`Progress of run ${run.id}`}
    />`,
  },
  { head: "Jobs", number: true, hideOnPhone: true, cell: (run) => number(run.total_jobs) },
  {
    head: "Failed",
    number: true,
    hideOnPhone: true,
    cell: (run) => html`<span class=${run.failed_jobs ? "reason" : "quiet"}>${number(run.failed_jobs)}</span>`,
  },
  { head: "Calls", number: true, hideOnPhone: true, cell: (run) => number(run.calls) },
  { head: "Documents", number: true, hideOnPhone: true, cell: (run) => number(run.documents) },
  { head: "Began", number: true, cell: (run) => html`<${When} at=${run.created_at} />` },
  {
    head: "Took",
    number: true,
    hideOnPhone: true,
    cell: (run) => html`<${Lasted} from=${run.started_at} to=${run.completed_at} />`,
  },
];

function Nothing({ isFiltered, hasMore }) {
  if (hasMore) return html`<${Empty} title="No matching runs on this page">
    A page examines a limited number of runs. Continue with the next page.
  <//>`;
  if (isFiltered) return html`<${Empty} title="No matching runs">
    Choose another state or time range, or clear the search.
  <//>`;
  return html`<${Empty} title="No runs yet" command="tidegate collect LOGIN">
    Start one with the button above, with the API, or with a command:
  <//>`;
}

function Filter({ state, choose, text, typed, range }) {
  return html`<${Field}
      label="Search by subject"
      placeholder="Search by subject   /"
      hideLabel
      kind="search"
      maxlength=${200}
      data-filter
      value=${text}
      onInput=${(event) => typed(event.target.value)}
    />
    <${TimeRange} range=${range} label="Created" />
    <${Choice} label="State" options=${STATES} value=${state} onChoose=${choose} />`;
}

/** Starts runs for one login or several; for one, opens its page. */
function StartRun() {
  const body = ({ logins, full }) => {
    const wanted = logins.split(/[\s,]+/).filter(Boolean);
    return { ...(wanted.length === 1 ? { login: wanted[0] } : { logins: wanted }), full: full === "on" };
  };
  const done = (answer) => (answer.results ? severalStarted(answer) : `Run ${answer.id} of ${answer.login} has started.`);
  return html`<${Action}
    primary
    icon="plus"
    label="Start a run"
    question="Start a run"
    confirm="Start"
    path="/v1/runs"
    body=${body}
    done=${done}
    onDone=${(answer) => answer.id && go(`#/runs/${answer.id}`)}
  >
    <${Field}
      label="Logins"
      name="logins"
      kind="area"
      required
      placeholder="octocat torvalds"
      hint="GitHub logins, separated by spaces, commas or lines."
      spellcheck=${false}
    />
    <${Field}
      label="Collect everything again"
      name="full"
      kind="check"
      hint="Also detects deletions in long lists. Needs more calls."
    />
  <//>`;
}

function severalStarted({ begun, results }) {
  const refused = results.filter((one) => one.status !== 201).map((one) => `${one.login}: ${one.detail}`);
  return [`${begun} of ${results.length} runs have started.`, ...refused].join(" ");
}

function pathOf(state, search, { since, until }) {
  const wanted = new URLSearchParams({ ...(search && { search }), ...(since && { since }), ...(until && { until }) });
  for (const one of state === "active" ? ACTIVE : state ? [state] : []) wanted.append("state", one);
  wanted.append("limit", 50);
  return `/v1/runs?${wanted}`;
}
