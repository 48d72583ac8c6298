// Crawls: active crawls, results, identities and paused hosts.

import { useTopic } from "../live.js";
import {
  Action,
  Badge,
  Columns,
  Empty,
  Lasted,
  number,
  Page,
  Problem,
  Progress,
  Section,
  Table,
  Tabs,
  Tile,
  Tiles,
  title,
  Unknown,
  When,
} from "../parts/index.js";
import { html } from "../view.js";
import { Products, Raws } from "./crawl-found.js";
import { Hosts, Identities, Robots } from "./crawl-hosts.js";
import { CrawlFields, toCrawl } from "./crawl-parts.js";

const LEAD = "Crawls of marketplaces: searches, products and stored answers.";
const PARTS = { overview: Overview, products: Products, raws: Raws, hosts: Hosts, identities: Identities };
const LABELS = { raws: "Stored answers" };
const PAGES = ["waiting", "running", "retrying", "succeeded", "unavailable", "failed", "canceled"];

export function Crawl({ rest, query }) {
  const live = useTopic("crawl");
  const now = live.value;
  const at = PARTS[rest[0]] ? rest[0] : "overview";
  const counts = { raws: now?.raws?.failed || undefined, hosts: now?.hosts?.total };
  const tabs = Object.keys(PARTS).map((id) => ({
    id,
    label: LABELS[id] ?? title(id),
    href: id === "overview" ? "#/crawl" : `#/crawl/${id}`,
    count: counts[id],
    isGrave: id === "raws",
  }));
  return html`<${Page} title="Crawl" lead=${LEAD} live=${live} actions=${html`<${StartCrawl} />`}>
    <${Problem} of=${live.problem} />
    <${Unknown} of=${now} />
    <${Tabs} label="Parts of crawls" tabs=${tabs} at=${at} />
    <${PARTS[at]} now=${now} query=${query} />
  <//>`;
}

function Overview({ now }) {
  return html`<${Figures} now=${now} />
    <${Section} title="Active crawls"><${Table}
      stacks
      columns=${CRAWLS}
      rows=${now ? now.active ?? [] : null}
      caption="Active crawls"
      empty=${html`<${NoCrawls} />`}
    /><//>
    <${Columns}>
      <${Pages} of=${now} />
      <${Section}
        title="Paused hosts"
        note="No request is sent to a paused host"
      >
        <${Table}
          stacks
          columns=${RESTING}
          rows=${now ? now.hosts?.resting ?? [] : null}
          rowKey=${(row) => row.host}
          caption="Paused hosts"
          empty="No host is paused."
        />
      <//>
    <//>`;
}

function Figures({ now }) {
  const { raws, hosts, identities } = now ?? {};
  return html`<${Tiles} label="Crawls at a glance">
    <${Tile}
      label="Active crawls"
      value=${number(now?.active?.length)}
      note="their runs are in the list of runs"
      href="#/runs"
    />
    <${Tile}
      label="Answers to apply"
      value=${number(raws?.pending)}
      note="stored, not applied to products yet"
      href="#/crawl/raws?state=pending"
    />
    <${Tile}
      label="Applied today"
      value=${raws?.processed_day >= 10_000 ? "10,000+" : number(raws?.processed_day)}
      note="within 24 hours"
    />
    <${Tile}
      label="Dead letters"
      value=${number(raws?.failed)}
      kind=${raws?.failed ? "critical" : undefined}
      note="answers that could not be applied"
      href="#/dead/crawl"
    />
    <${Tile}
      label="Hosts"
      value=${number(hosts?.total)}
      kind=${hosts?.resting.length ? "warning" : undefined}
      note=${hosts ? `${number(hosts.resting.length)} rest` : ""}
      href="#/crawl/hosts"
    />
    <${Tile}
      label="Identities"
      value=${number(identities?.enabled)}
      kind=${identities?.enabled === 0 ? "critical" : undefined}
      note=${identities && `in use; ${number(identities.resting)} rest, ${number(identities.disabled)} disabled`}
      href="#/crawl/identities"
    />
  <//>`;
}

const CRAWLS = [
  {
    head: "Crawl",
    cell: (run) => html`<a href=${`#/runs/${run.id}`}>${run.user_id}</a> <span class="quiet">${run.login}</span>`,
  },
  { head: "State", cell: (run) => html`<${Badge} state=${run.status} />` },
  { head: "Pages", wide: true, cell: (run) => html`<${Progress}
    done=${run.succeeded_jobs + run.failed_jobs + run.canceled_jobs}
    failed=${run.failed_jobs}
    most=${run.total_jobs}
    label=${`Pages of run ${run.id}`}
    text=${`${number(run.succeeded_jobs)} of ${number(run.total_jobs)}`}
  />` },
  { head: "Calls", number: true, hideOnPhone: true, cell: (run) => number(run.calls) },
  { head: "For", hideOnPhone: true, cell: (run) => html`<${Lasted} from=${run.started_at ?? run.created_at} />` },
  { head: "Actions", shrink: true, cell: (run) => html`<${Action}
    label="Cancel"
    name=${`Cancel run ${run.id}`}
    small
    danger
    question=${`Cancel the crawl ${run.user_id}?`}
    consequence="Pages in progress finish; no others are requested. Results stay. It can be started again."
    path=${`/v1/runs/${run.id}/cancel`}
    done=${`Run ${run.id} is canceled.`}
  />` },
];

const RESTING = [
  { head: "Host", cell: (row) => html`<code>${row.host}</code>` },
  { head: "Until", cell: (row) => html`<${When} at=${row.rests_until} />` },
  { head: "Reason", wide: true, cell: (row) => html`<span class="reason">${row.reason ?? "none given"}</span>` },
  { head: "robots.txt", hideOnPhone: true, cell: (row) => html`<${Robots} of=${row.robots} />` },
];

function Pages({ of }) {
  const all = of?.pages ? PAGES.reduce((sum, state) => sum + of.pages[state], 0) : 0;
  const rows = of
    ? PAGES.filter((state) => of.pages?.[state] > 0).map((state) => ({ id: state, pages: of.pages[state] }))
    : null;
  const columns = [
    { head: "Outcome", shrink: true, cell: (row) => html`<${Badge} state=${row.id} />` },
    { head: "Pages", number: true, cell: (row) => number(row.pages) },
    { head: "Share", wide: true, cell: (row) => html`<${Progress}
      done=${row.pages}
      most=${all}
      label=${`Share of pages: ${row.id}`}
    />` },
  ];
  return html`<${Section}
    title="Pages"
    note="Of active crawls"
  >
    <${Table} columns=${columns} rows=${rows} caption="Pages by outcome" empty="No crawl is active." />
  <//>`;
}

function StartCrawl() {
  return html`<${Action}
    label="Start a crawl"
    icon="play"
    primary
    question="Start a crawl"
    consequence="Reads the searches, then three pages of each product found. A later run fetches what changed."
    confirm="Start"
    path="/v1/crawl/runs"
    body=${toCrawl}
    done=${(run) => `Run ${run.id} has started.`}
    onDone=${(run) => (location.hash = `#/runs/${run.id}`)}
  >
    <${CrawlFields} />
  <//>`;
}

const NoCrawls = () => html`<${Empty}
  title="No crawl is active"
  command="tidegate crawl run daily --url https://shop.example -k lantern"
>
  Start one here, or with a command:
<//>`;
