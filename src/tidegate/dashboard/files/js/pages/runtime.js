// Runtime status: streams, timers, the gate, the outbox, processes and circuit breakers.

import { useHistory } from "../history.js";
import { useTopic } from "../live.js";
import {
  Badge,
  Chart,
  ChartRange,
  Columns,
  compact,
  count,
  duration,
  number,
  Page,
  Problem,
  Section,
  Table,
  Tile,
  Tiles,
  When,
  useChartRange,
} from "../parts/index.js";
import { Unknown } from "../parts/unknown.js";
import { html } from "../view.js";

const SERIES = ["stream/", "timers/", "outbox/"];
const BREAKERS = {
  closed: ["good", "closed: requests are sent"],
  open: ["bad", "open: the server is unavailable"],
  trying: ["busy", "trying: one request probes the server"],
};

export function Runtime() {
  const topic = useTopic("runtime");
  const servers = useTopic("overview").value?.servers;
  const now = topic.value;
  return html`<${Page}
    title="Runtime"
    lead="Streams, timers, the gate, the outbox, processes and circuit breakers."
    live=${topic}
  >
    <${Problem} of=${topic.problem} />
    <${Unknown} of=${now} />
    <${Figures} now=${now} />
    <${Depths} />
    <${Streams} streams=${now && now.streams} />
    <${Columns}>
      <${Processes} processes=${now && now.processes} />
      <${Servers} servers=${servers} breakers=${now && now.breakers} />
    <//>
    <${Columns}>
      <${Timers} timers=${now && now.timers} />
      <${Gate} gate=${now && now.gate} />
    <//>
  <//>`;
}

function Figures({ now }) {
  const depth = now?.streams?.reduce((sum, one) => sum + one.depth, 0);
  const pending = now?.streams?.reduce((sum, one) => sum + one.pending, 0);
  const timers = now?.timers?.reduce((sum, one) => sum + one.count, 0);
  const leader = now?.processes?.find((one) => one.is_leader);
  return html`<${Tiles} label="Runtime status at a glance">
    <${Tile} label="In streams" value=${compact(depth)} note=${now && `${number(pending)} being handled`} />
    <${Tile} label="Timers" value=${compact(timers)} note="planned" />
    <${Tile}
      label="At the gate"
      value=${compact(now?.gate?.waiting)}
      note=${now?.gate && `${count(now.gate.blocked, "credential")} at rest`}
    />
    <${Tile}
      label="Outbox"
      value=${compact(now?.outbox?.pending)}
      note=${now?.outbox?.pending > 0 ? html`oldest <${When} at=${now.outbox.oldest_at} />` : "nothing waits"}
    />
    <${Tile}
      label="Dead events"
      value=${compact(now?.outbox?.dead)}
      note="of the outbox"
      kind=${now?.outbox?.dead ? "critical" : undefined}
      href="#/dead/events"
    />
    <${Tile}
      label="Processes"
      value=${number(now?.processes?.length)}
      note=${leader ? `${leader.host} leads` : now?.processes && "no leader"}
      kind=${now?.processes && !leader ? "warning" : undefined}
    />
  <//>`;
}

function Depths() {
  const range = useChartRange();
  const { series, problem } = useHistory(SERIES, range.length);
  const drawn = (prefix, suffix = "") => series && series
    .filter((one) => one.name.startsWith(prefix) && one.name.endsWith(suffix))
    .map((one) => ({ label: one.name.slice(prefix.length, one.name.length - suffix.length), points: one.points }));
  const timers = series && drawn("timers/").map((one) => ({ ...one, label: `timers: ${one.label}` }));
  const outbox = series && [...drawn("outbox/"), ...timers];
  return html`<${Section} title="Depths" aside=${html`<${ChartRange} range=${range} />`} plain>
    <${Problem} of=${problem} />
    <div class="charts">
      <div class="card">
        <${Chart} title="Messages in streams" unit="messages" series=${drawn("stream/", "/depth")} isStep />
      </div>
      <div class="card">
        <${Chart} title="Not yet delivered" unit="messages" series=${drawn("stream/", "/lag")} isStep />
      </div>
      <div class="card"><${Chart} title="Outbox and timers" series=${outbox} isStep /></div>
    </div>
  <//>`;
}

function Streams({ streams }) {
  const columns = [
    { head: "Stream", cell: (one) => html`<span class="mono">${one.name}</span>` },
    { head: "Messages", number: true, cell: (one) => number(one.depth) },
    { head: "Being handled", number: true, hideOnPhone: true, cell: (one) => number(one.pending) },
    { head: "Not yet delivered", number: true, hideOnPhone: true, cell: (one) => number(one.lag) },
    {
      head: "Dead",
      number: true,
      cell: (one) => (one.dead ? html`<a class="reason" href="#/dead/messages">${number(one.dead)}</a>` : "0"),
    },
    { head: "Consumers", wide: true, hideOnPhone: true, cell: (one) => html`<${Consumers} of=${one.consumers} />` },
  ];
  return html`<${Section} title="Streams">
    <${Table}
      caption="Streams"
      columns=${columns}
      rows=${streams}
      rowKey=${(one) => one.name}
      empty="There are no streams yet."
    />
  <//>`;
}

function Consumers({ of }) {
  if (of.length === 0) return html`<span class="quiet">no reader yet</span>`;
  return html`<ul class="plain-list">
    ${of.map((one) => html`<li key=${one.name}>
      <span class="mono">${one.name}</span> <span class="quiet">
        has ${number(one.pending)}, idle for ${duration(one.idle_ms)}
      </span>
    </li>`)}
  </ul>`;
}

function Processes({ processes }) {
  const columns = [
    { head: "Process", wide: true, cell: (one) => html`<span class="mono">${one.owner}</span>` },
    {
      head: "Role",
      shrink: true,
      cell: (one) => html`<${Badge}
        state=${one.is_leader ? "leader" : "alive"}
        label=${one.is_leader ? "leads" : "alive"}
      />${one.is_here && html` <${Badge} state="info" label="this one" />`}`,
    },
    {
      head: "Lease",
      number: true,
      hideOnPhone: true,
      cell: (one) => html`<span title="Until it ends, unless it is renewed">${duration(one.lease_ms)} left</span>`,
    },
  ];
  return html`<${Section} title="Processes" note="The leader runs the timers and relays the outbox.">
    <${Table}
      caption="Processes"
      columns=${columns}
      rows=${processes}
      rowKey=${(one) => one.owner}
      empty="No process is alive, or it is not known."
    />
  <//>`;
}

function Servers({ servers, breakers }) {
  const columns = [
    { head: "Server", cell: (one) => one.name },
    {
      head: "What",
      wide: true,
      cell: (one) => html`${one.product} <span class="quiet mono">${one.address}</span>
        ${one.reason && html`<div class="reason">${one.reason}</div>`}`,
    },
    { head: "State", shrink: true, cell: (one) => html`<${Badge} state=${one.is_up ? "up" : "away"} />` },
  ];
  return html`<${Section} title="Servers and breakers">
    <${Table} caption="Servers" columns=${columns} rows=${servers} rowKey=${(one) => one.name} />
    ${breakers?.length > 0 && html`<ul class="plain-list">${breakers.map((one) => html`<li key=${one.name} class="row">
      <span>CircuitBreaker of ${one.name}</span><${Badge}
        state=${one.state}
        kind=${BREAKERS[one.state]?.[0]}
        label=${BREAKERS[one.state]?.[1]}
      />
    </li>`)}</ul>`}
  <//>`;
}

function Timers({ timers }) {
  const columns = [
    { head: "Timers", cell: (one) => one.name },
    { head: "Planned", number: true, cell: (one) => number(one.count) },
    {
      head: "Next",
      number: true,
      cell: (one) => html`<${When} at=${one.next_at} none=${one.count > 0 ? "not known" : "nothing is planned"} />`,
    },
  ];
  return html`<${Section} title="Timers">
    <${Table} caption="Timers" columns=${columns} rows=${timers} rowKey=${(one) => one.name} empty="No timers." />
  <//>`;
}

function Gate({ gate }) {
  const columns = [
    { head: "Pool", cell: (one) => html`<span class="mono">${one.pool}</span>` },
    { head: "Waiting", wide: true, cell: (one) => waitingIn(one) },
    { head: "Credentials", number: true, cell: (one) => number(one.credentials) },
    { head: "Under way", number: true, cell: (one) => number(one.in_flight) },
  ];
  return html`<${Section}
    title="The gate"
    aside=${html`<a href="#/quotas">Quotas</a>`}
    note="Jobs that wait for a permit."
  >
    <${Table}
      caption="Pools at the gate"
      columns=${columns}
      rows=${gate && gate.pools}
      rowKey=${(one) => one.pool}
      empty="No job has waited yet."
    />
  <//>`;
}

function waitingIn({ waiting }) {
  const waits = Object.entries(waiting).filter(([, jobs]) => jobs > 0);
  const found = waits.map(([bucket, jobs]) => `${number(jobs)} for ${bucket}`);
  return found.length > 0 ? found.join(", ") : html`<span class="quiet">nothing</span>`;
}
