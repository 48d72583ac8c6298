// Schedules: runs that start at set times.

import { given } from "../fields.js";
import { useFetched, useTopic } from "../live.js";
import { Action, Badge, Empty, Field, Page, Pager, Problem, Section, Table, usePages, When } from "../parts/index.js";
import { html } from "../view.js";
import { CrawlFields, toCrawl } from "./crawl-parts.js";

const LEAD = "Runs that start at set times, one per due time.";
const PAGE = 50;
const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC";

export function Schedules() {
  const newest = useTopic("runs").value?.runs[0]?.id;
  const pages = usePages(`/v1/schedules?limit=${PAGE}`);
  const { value, problem, reload } = useFetched(pages.path, [newest]);
  const rows = value?.schedules;
  const next = rows?.length === PAGE ? `/v1/schedules?limit=${PAGE}&after=${rows.at(-1).id}` : null;
  const actions = html`<${NewSchedule} onDone=${reload} /><${NewCrawlSchedule} onDone=${reload} />`;
  return html`<${Page} title="Schedules" lead=${LEAD} actions=${actions}>
    <${Problem} of=${problem} retry=${reload} />
    <${Section} title="Schedules" note="In order of creation">
      <${Table}
        stacks
        columns=${columnsOf(reload)}
        rows=${rows ?? (problem ? [] : null)}
        caption="Schedules with the next due time and the result of the last one"
        empty=${problem ? "They cannot be listed now." : html`<${NoSchedules} />`}
      />
      <${Pager} pages=${pages} next=${next} label="schedules" />
    <//>
  <//>`;
}

const columnsOf = (reload) => [
  {
    head: "Schedule",
    cell: (row) => html`<strong>${nameOf(row)}</strong>
      <span class="quiet"> ${row.source === "crawl" ? `crawl of ${row.login}` : row.source}</span>`,
  },
  { head: "Cron", cell: (row) => html`<code>${row.cron}</code> <span class="quiet">${row.timezone}</span>` },
  { head: "State", hideOnPhone: true, cell: (row) => html`<${Badge} state=${row.next_at ? "active" : "paused"} />` },
  {
    head: "Next",
    cell: (row) => (row.next_at ? html`<${When} at=${row.next_at} />` : html`<span class="quiet">paused</span>`),
  },
  { head: "Last", wide: true, hideOnPhone: true, cell: (row) => html`<${Last} of=${row} />` },
  { head: "Actions", shrink: true, cell: (row) => html`<${Acts} of=${row} reload=${reload} />` },
];

function Last({ of }) {
  if (!of.last_due_at && !of.last_run_id) return html`<span class="quiet">never due yet</span>`;
  return html`<${When} at=${of.last_due_at} none="triggered" />
    ${of.last_run_id && html` <a href=${`#/runs/${of.last_run_id}`}>run ${of.last_run_id}</a>`}
    ${of.last_error && html` <span class="reason">${of.last_error}</span>`}`;
}

function Acts({ of, reload }) {
  const path = `/v1/schedules/${of.id}`;
  const label = `schedule ${of.id} of ${nameOf(of)}`;
  const turn = of.next_at
    ? html`<${Action}
      label="Pause"
      name=${`Pause schedule ${of.id}`}
      icon="pause"
      small
      question=${`Pause ${label}?`}
      consequence="It starts no runs until it is resumed. A run that it started continues."
      path=${`${path}/pause`}
      done=${`Schedule ${of.id} is paused.`}
      onDone=${reload}
    />`
    : html`<${Action}
      label="Resume"
      name=${`Resume schedule ${of.id}`}
      icon="play"
      small
      question=${`Resume ${label}?`}
      consequence="It continues with the next due time; earlier ones are skipped."
      path=${`${path}/resume`}
      done=${`Schedule ${of.id} goes on.`}
      onDone=${reload}
    />`;
  return html`<div class="row-actions">
    <${Action}
      label="Trigger"
      name=${`Trigger schedule ${of.id}`}
      icon="play"
      small
      whyNot=${of.next_at ? null : "The schedule is paused: resume it first."}
      question=${`Start a run of ${label} now?`}
      consequence="One run starts at once, in addition to the due times, unless the subject has an active run."
      path=${`${path}/trigger`}
      body=${{}}
      done=${fired}
      onDone=${reload}
    />
    ${turn}
    <${Action}
      label="Remove"
      name=${`Remove schedule ${of.id}`}
      small
      danger
      question=${`Remove ${label}?`}
      consequence="It is deleted. A run that it started continues."
      method="DELETE"
      path=${path}
      done=${`Schedule ${of.id} is removed.`}
      onDone=${reload}
    />
  </div>`;
}

const nameOf = ({ source, user_id, login }) => (source === "crawl" ? user_id : login);

const fired = ({ outcome, run_id, reason }) =>
  outcome === "begun" ? `Run ${run_id} has started.` : `No run started: ${reason ?? "this subject has an active run"}.`;

function NewSchedule({ onDone }) {
  return html`<${Action}
    label="New schedule"
    icon="plus"
    primary
    question="Schedule a collection"
    consequence="A run of this user starts at each due time. An existing schedule gets the new options."
    confirm="Add it"
    path="/v1/schedules"
    body=${toSchedule}
    done=${(added) => `Schedule ${added.id} is added.`}
    onDone=${onDone}
  >
    <${Field} label="GitHub login" name="login" required placeholder="mona" />
    <${ClockFields} />
    <${Field}
      label="Collect everything again each time"
      name="full"
      kind="check"
      hint="Detects deletions everywhere. Needs more calls."
    />
  <//>`;
}

function NewCrawlSchedule({ onDone }) {
  return html`<${Action}
    label="New crawl schedule"
    icon="plus"
    question="Schedule a crawl"
    consequence="A crawl starts at each due time. An existing schedule gets the new options."
    confirm="Add it"
    path="/v1/crawl/schedules"
    body=${toCrawlSchedule}
    done=${(added) => `Schedule ${added.id} is added.`}
    onDone=${onDone}
  >
    <${CrawlFields} />
    <${ClockFields} />
  <//>`;
}

const ClockFields = () => html`
  <${Field}
    label="Cron"
    name="cron"
    required
    defaultValue="0 3 * * *"
    hint="Minute, hour, day of month, month, day of week."
  />
  <${Field}
    label="Time zone"
    name="timezone"
    required
    defaultValue=${HERE}
    hint="The time zone of the expression, like Europe/Berlin."
  />`;

const toSchedule = ({ login, cron, timezone, full }) =>
  given({ login: login.trim(), cron, timezone, full: full === "on" });

const toCrawlSchedule = ({ cron, timezone, ...crawl }) => ({ ...toCrawl(crawl), ...given({ cron, timezone }) });

const NoSchedules = () => html`<${Empty}
  title="No schedules yet"
  command='tidegate schedules add mona --cron "0 3 * * *"'
>
  Add a schedule here, or with a command:
<//>`;
