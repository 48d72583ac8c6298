// Hosts of crawls with their robots.txt; identities with their health per host.

import { now } from "../clock.js";
import { useFetched } from "../live.js";
import {
  Action,
  Badge,
  count,
  duration,
  Empty,
  Field,
  Meter,
  moment,
  Problem,
  Section,
  Table,
  When,
} from "../parts/index.js";
import { html } from "../view.js";

const ROBOTS = {
  read: ["good", "read"],
  none: ["good", "there is none"],
  unknown: ["wait", "to be read"],
  elsewhere: ["warn", "at another host"],
};

/** The state of a host's robots.txt. */
export const Robots = ({ of }) => html`<${Badge} state=${of} kind=${ROBOTS[of]?.[0]} label=${ROBOTS[of]?.[1]} />`;

export function Hosts({ now: seen }) {
  const { value, problem, reload } = useFetched("/v1/crawl/hosts", [seen?.hosts?.total, seen?.hosts?.resting.length]);
  const columns = [
    { head: "Host", cell: (row) => html`<code>${row.host}</code>` },
    { head: "robots.txt", cell: (row) => html`<${Robots} of=${row.robots} /> <span class="quiet"><${When}
      at=${row.read_at}
      none="not read yet"
    /></span>` },
    {
      head: "Asks for",
      hideOnPhone: true,
      cell: (row) => (
        row.crawl_delay_ms
          ? `${row.crawl_delay_ms < 60_000 ? `${row.crawl_delay_ms / 1000} s` : duration(row.crawl_delay_ms)} between calls`
          : html`<span class="quiet">no delay</span>`
      ),
    },
    { head: "Rests", wide: true, cell: (row) => html`<${Rest} of=${row} />` },
    { head: "Actions", shrink: true, cell: (row) => html`<${Action}
      label="Read again"
      name=${`Read again: robots.txt of ${row.host}`}
      icon="retry"
      small
      question=${`Read robots.txt of ${row.host} again?`}
      consequence="It is read again before the next page. A pause that the host asked for continues."
      path=${`/v1/crawl/hosts/${encodeURIComponent(row.host)}/reread`}
      done=${`robots.txt of ${row.host} is read before the next page.`}
      onDone=${reload}
    />` },
  ];
  return html`<${Section} title="Hosts" note="Their limits, and which of them are paused">
    <${Problem} of=${problem} retry=${reload} />
    <${Table}
      stacks
      columns=${columns}
      rows=${value?.hosts ?? (problem ? [] : null)}
      rowKey=${(row) => row.host}
      caption="Hosts of crawls"
      empty="No host was crawled yet."
    />
  <//>`;
}

function Rest({ of: { rests_until, reason } }) {
  if (!(moment(rests_until) > now())) return html`<span class="quiet">no</span>`;
  return html`<${Badge} state="resting" /> until <${When} at=${rests_until} /> <span class="reason">${reason}</span>`;
}

export function Identities({ now: seen }) {
  const { value, problem, reload } = useFetched("/v1/crawl/identities", [JSON.stringify(seen?.identities ?? null)]);
  return html`<${Section}
    title="Identities"
    note="Identities that requests use. Stored headers are never shown"
    aside=${html`<${PutIdentity} onDone=${reload} />`}
  >
    <${Problem} of=${problem} retry=${reload} />
    <${Table}
      stacks
      columns=${identityColumns(reload)}
      rows=${value?.identities ?? (problem ? [] : null)}
      rowKey=${(row) => row.name}
      caption="Identities"
      empty=${html`<${Empty} title="No identities" />`}
      detail=${(row) => row.health.length > 0 && html`<${Health} of=${row} />`}
    />
  <//>`;
}

const identityColumns = (reload) => [
  { head: "Identity", cell: (row) => html`<strong>${row.name}</strong>` },
  { head: "State", cell: (row) => (row.built_in ? html`<${Badge}
    state="enabled"
    label="built in"
  />` : html`<${Badge} state=${row.enabled ? "enabled" : "disabled"} />`) },
  {
    head: "Refused by",
    wide: true,
    cell: (row) => (row.health.length ? count(row.health.length, "host") : html`<span class="quiet">none</span>`),
  },
  { head: "Changed", hideOnPhone: true, cell: (row) => html`<${When} at=${row.changed_at} />` },
  { head: "Actions", shrink: true, cell: (row) => html`<${IdentityActs} of=${row} reload=${reload} />` },
];

function Health({ of }) {
  const columns = [
    { head: "Host", cell: (row) => html`<code>${row.host}</code>` },
    { head: "Health", wide: true, cell: (row) => html`<${Meter}
      value=${Math.round(row.score * 100)}
      most=${100}
      label=${`Health of ${of.name} at ${row.host}`}
      text=${`${Math.round(row.score * 100)} %`}
    />` },
    { head: "Rests", cell: (row) => html`<${When} at=${row.resting_until} none="no" />` },
    {
      head: "Why",
      wide: true,
      hideOnPhone: true,
      cell: ({ last_reason, refusals }) => html`<span class="reason">${last_reason ?? "–"}</span>
        <span class="quiet"> ${count(refusals, "refusal")}</span>`,
    },
  ];
  return html`<${Table}
    columns=${columns}
    rows=${of.health}
    rowKey=${(row) => row.host}
    caption=${`Health of ${of.name} by host`}
  />`;
}

function IdentityActs({ of, reload }) {
  if (of.built_in) return html`<span class="quiet">by settings</span>`;
  const path = `/v1/crawl/identities/${encodeURIComponent(of.name)}`;
  const turn = of.enabled
    ? html`<${Action}
      label="Disable"
      name=${`Disable identity ${of.name}`}
      icon="pause"
      small
      question=${`Disable identity ${of.name}?`}
      consequence="It is no longer used, but kept. If all are disabled, no crawl can start."
      path=${`${path}/disable`}
      done=${`Identity ${of.name} is disabled.`}
      onDone=${reload}
    />`
    : html`<${Action}
      label="Enable"
      name=${`Enable identity ${of.name}`}
      icon="play"
      small
      question=${`Enable identity ${of.name}?`}
      consequence="It is used again. A pause at a host continues."
      path=${`${path}/enable`}
      done=${`Identity ${of.name} is enabled.`}
      onDone=${reload}
    />`;
  return html`<div class="row-actions">
    ${turn}
    <${Action}
      label="Remove"
      name=${`Remove identity ${of.name}`}
      small
      danger
      question=${`Remove identity ${of.name}?`}
      consequence="It and its headers are deleted. Requests in progress finish."
      method="DELETE"
      path=${path}
      done=${`Identity ${of.name} is removed.`}
      onDone=${reload}
    />
  </div>`;
}

function PutIdentity({ onDone }) {
  return html`<${Action}
    label="Add an identity"
    icon="plus"
    question="Add an identity"
    consequence="It is used from now on. An existing identity of this name gets the new headers. Headers are never shown."
    confirm="Add it"
    method="PUT"
    path=${({ name }) => `/v1/crawl/identities/${encodeURIComponent(name.trim())}`}
    body=${({ headers }) => ({ headers: toHeaders(headers) })}
    done=${(added) => `Identity ${added.name} is added.`}
    onDone=${onDone}
  >
    <${Field} label="Name" name="name" required pattern="[A-Za-z0-9_.\\-]+" placeholder="night" />
    <${Field}
      label="Headers"
      name="headers"
      kind="area"
      required
      spellcheck="false"
      placeholder="User-Agent: Nightjar/1.0 (+https://example.com/bot)"
      hint="One per line; User-Agent is required."
    />
  <//>`;
}

const toHeaders = (text) =>
  Object.fromEntries(
    text.split("\n").filter((line) => line.trim()).map((line) => {
      const [name, ...value] = line.split(":");
      return [name.trim(), value.join(":").trim()];
    }),
  );
