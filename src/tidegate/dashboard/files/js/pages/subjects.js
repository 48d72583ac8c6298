// Subjects: what was collected or is scheduled, with the last run and the next due time.

import { useFetched, useSettled, useTopic } from "../live.js";
import { Badge, Empty, Field, number, Page, Pager, Problem, Section, Table, usePages, When } from "../parts/index.js";
import { refine } from "../router.js";
import { html, useEffect, useState } from "../view.js";

const PAGE = 50;

export function Subjects({ query }) {
  const [text, typed] = useState(query.get("search") ?? "");
  const search = useSettled(text.trim());
  const kept = new URLSearchParams(search && { search }).toString();
  useEffect(() => refine(new URLSearchParams(kept)), [kept]);
  const pages = usePages(`/v1/subjects?${new URLSearchParams({ ...(search && { search }), limit: PAGE })}`);
  const newest = useTopic("runs").value?.runs[0]?.id;
  const { value, problem, reload } = useFetched(pages.path, [newest]);
  const filter = html`<${Field}
    label="Search by subject"
    placeholder="Search by subject   /"
    hideLabel
    kind="search"
    maxlength=${200}
    data-filter
    value=${text}
    onInput=${(event) => typed(event.target.value)}
  />`;
  return html`<${Page} title="Subjects" lead="What was collected or is scheduled: users, repositories, organizations, searches.">
    <${Problem} of=${problem} retry=${reload} />
    <${Section} title="Subjects" note="By id" aside=${filter}>
      <${Table}
        caption="Subjects, by id"
        columns=${COLUMNS}
        rows=${value?.subjects ?? (problem ? [] : null)}
        empty=${html`<${Nothing} isFiltered=${Boolean(search)} />`}
      />
      <${Pager} pages=${pages} next=${value?.next} label="subjects" />
    <//>
  <//>`;
}

const COLUMNS = [
  {
    head: "Subject",
    cell: (one) => html`<a class="clip clip-name" title=${one.login} href=${`#/runs?search=${encodeURIComponent(one.id)}`}>
        ${one.login}
      </a>${one.source === "github" ? null : html` <span class="quiet">${one.source}</span>`}`,
  },
  {
    head: "Last run",
    cell: ({ last_run: last }) =>
      last ? html`<a href=${`#/runs/${last.id}`}>#${last.id}</a>` : html`<span class="quiet">never run</span>`,
  },
  { head: "State", shrink: true, cell: ({ last_run: last }) => last && html`<${Badge} state=${last.status} />` },
  {
    head: "Failed",
    number: true,
    hideOnPhone: true,
    cell: ({ last_run: last }) =>
      last && html`<span class=${last.failed_jobs ? "reason" : "quiet"}>${number(last.failed_jobs)}</span>`,
  },
  {
    head: "Last completed",
    number: true,
    cell: (one) => (one.last_completed_at ? html`<${When} at=${one.last_completed_at} />` : null),
  },
  {
    head: "Next",
    number: true,
    cell: (one) =>
      one.next_at
        ? html`<${When} at=${one.next_at} />`
        : one.schedules > 0 && html`<a class="quiet" href="#/schedules">paused</a>`,
  },
  { head: "Runs", number: true, hideOnPhone: true, cell: (one) => number(one.runs) },
  { head: "Documents", number: true, hideOnPhone: true, cell: (one) => number(one.documents) },
];

function Nothing({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No matching subjects">Change or clear the search.<//>`;
  return html`<${Empty} title="No subjects yet" command="tidegate collect LOGIN">
    Collect one with a command, or start a run on the page of runs:
  <//>`;
}
