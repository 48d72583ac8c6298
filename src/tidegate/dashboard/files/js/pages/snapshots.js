// Snapshots: calls against the limits of the upstream, freshness, and lag.

import { useHistory } from "../history.js";
import { useFetched, useTopic } from "../live.js";
import {
  Badge,
  Chart,
  ChartRange,
  Columns,
  Empty,
  Facts,
  Meter,
  Notice,
  number,
  Page,
  percent,
  Problem,
  Progress,
  rate,
  Section,
  Table,
  Tile,
  Tiles,
  Unknown,
  When,
  useChartRange,
} from "../parts/index.js";
import { html } from "../view.js";
import { FRESHNESS, Lookup } from "./lookup.js";

const LEAD = "Stored copies of upstream objects with their age, refreshed within the limits of the upstream.";
const PRIORITIES = { high: "High (readers)", low: "Low (background)", all: "All" };
const STATES = [
  ["fresh", "Checked within its time to live."],
  ["stale", "Older than that; reading it queues a refresh."],
  ["updating", "There is no snapshot yet; a refresh is queued or in progress."],
  ["not_found", "The upstream has no such subject."],
  ["failed", "The last refresh failed permanently."],
];

export function Snapshots() {
  const live = useTopic("snapshots");
  const now = live.value;
  if (live.problem?.status === 404) return html`<${NoKinds} />`;
  return html`<${Page} title="Snapshots" lead=${LEAD} live=${live}>
    <${Problem} of=${live.problem} />
    <${Unknown} of=${now} />
    ${now?.paused_until && html`<${Notice}
      kind="warning"
      title="The upstream asked for a pause"
    >
      No call is made before it ends: <${When} at=${now.paused_until} />.
    <//>`}
    <${Figures} now=${now} />
    <${Charts} now=${now} />
    <${Columns}>
      <${Freshness} of=${now?.freshness} isKnown=${Boolean(now)} />
      <${Topics} of=${now} />
    <//>
    <${Rules} of=${now} />
    ${now && html`<${Lookup} kinds=${now.kinds} /><${Prefetch} />`}
  <//>`;
}

function Figures({ now }) {
  const all = now?.rates?.find((one) => one.priority === "all");
  const lag = now?.topics?.reduce((sum, one) => sum + one.lag, 0);
  const { fresh, sampled } = now?.freshness ?? {};
  return html`<${Tiles} label="Snapshots at a glance">
    <${Tile}
      label="Calls per second"
      value=${rate(all?.per_second)}
      note=${all?.limit ? `of ${rate(all.limit)} that are allowed` : "in the last second"}
    />
    <${Tile}
      label="Wait for a permit"
      value=${now?.waiting ? number(now.waiting.high + now.waiting.low) : "–"}
      note=${now?.waiting ? `${number(now.waiting.high)} high, ${number(now.waiting.low)} low` : ""}
    />
    <${Tile}
      label="Fresh"
      value=${sampled ? percent(fresh, sampled) : "–"}
      note=${sampled ? `of ${number(sampled)} subjects` : "nothing is stored yet"}
    />
    <${Tile} label="Lag" value=${number(lag)} note="events not read yet" />
    <${Tile}
      label="Dead letters"
      value=${number(now?.dead)}
      kind=${now?.dead ? "critical" : undefined}
      note="refreshes that failed permanently"
      href="#/dead/snapshots"
    />
  <//>`;
}

function Charts({ now }) {
  const range = useChartRange();
  const { series } = useHistory(["snapshots/rate/", "snapshots/lag/"], range.length);
  const rates = named(series, "snapshots/rate/", (name) => PRIORITIES[name] ?? name);
  const limit = now?.rates?.find((one) => one.priority === "all")?.limit;
  return html`<${Section} title="Over time" aside=${html`<${ChartRange} range=${range} />`}>
    <div class="charts">
      <${Chart}
        title="Calls against the limit"
        unit="calls/s"
        series=${rates && withLimit(rates, limit)}
        empty="Points appear when the upstream is called."
      />
      <${Chart}
        title="Lag: events not read yet"
        unit="events"
        series=${named(series, "snapshots/lag/", (name) => name)}
        isStep
        empty="Points appear when refreshes are requested."
      />
    </div>
  <//>`;
}

function Freshness({ of, isKnown }) {
  const nothing = isKnown ? [] : null;
  const rows = of ? STATES.map(([state, meaning]) => ({ id: state, meaning, subjects: of[state] })) : nothing;
  const columns = [
    { head: "State", shrink: true, cell: (row) => html`<span title=${row.meaning}><${Badge}
      state=${row.id}
      kind=${FRESHNESS[row.id]}
    /></span>` },
    { head: "Subjects", number: true, cell: (row) => number(row.subjects) },
    { head: "Share", wide: true, cell: (row) => html`<${Progress}
      done=${row.subjects}
      most=${of.sampled}
      label=${`Share of ${row.id}`}
    />` },
  ];
  const note = of && `${of.is_all ? "All" : "A sample of"} ${number(of.sampled)} stored subjects`;
  return html`<${Section} title="Freshness" note=${note}>
    <${Table} columns=${columns} rows=${rows} caption="Subjects by freshness" empty="It cannot be read now." />
  <//>`;
}

function Topics({ of }) {
  const columns = [
    { head: "Topic", cell: (row) => html`<code>${row.topic}</code>` },
    { head: "Group", hideOnPhone: true, cell: (row) => html`<code>${row.group}</code>` },
    { head: "Lag", number: true, cell: (row) => number(row.lag) },
  ];
  return html`<${Section} title="Topics" note="Events on their way to the workers">
    <${Table}
      columns=${columns}
      rows=${of ? of.topics ?? [] : null}
      rowKey=${(row) => `${row.topic}/${row.group}`}
      caption="Lag of each topic and group"
      empty="It cannot be found out now."
    />
  <//>`;
}

function Rules({ of }) {
  const columns = [
    { head: "Limit", cell: (row) => row.name },
    {
      head: "Counts",
      hideOnPhone: true,
      cell: (row) => (row.priorities.length === 1 ? `${row.priorities[0]} priority` : "every call"),
    },
    {
      head: "Holds",
      hideOnPhone: true,
      cell: (row) => (
        row.window_s
          ? `${number(row.limit)} in any ${span(row.window_s)}`
          : `${rate(row.per_second)} per second on average`
      ),
    },
    { head: "Left", wide: true, cell: (row) => html`<${Meter}
      value=${Math.max(0, row.limit - row.used)}
      most=${row.limit}
      label=${`Left of ${row.name}`}
    />` },
  ];
  return html`<${Section} title="Limits" note="Calls that would exceed a limit are not made">
    <${Table}
      columns=${columns}
      rows=${of ? of.rules ?? [] : null}
      rowKey=${(row) => row.name}
      caption="Remaining calls of each limit"
      empty="It cannot be found out now."
    />
  <//>`;
}

function Prefetch() {
  const { value, problem } = useFetched("/v1/snapshots/prefetch");
  if (problem || !value) return null;
  return html`<${Section} title="Prefetch" note="Scheduled refreshes">
    <${Facts} of=${[
      ["State", html`<${Badge} state=${value.enabled ? "enabled" : "disabled"} />`, `policy: ${value.policy}`],
      ["Due now", number(value.due_now), value.next_due_at && html`next <${When} at=${value.next_due_at} />`],
      ["Spent today", `${number(value.spent)} of ${number(value.budget)} calls`],
      ["Renewed", html`<${When} at=${value.budget_renews_at} />`],
      ["Pace", `${rate(value.calls_per_second)} calls/s at most`],
    ]} />
  <//>`;
}

function NoKinds() {
  return html`<${Page} title="Snapshots" lead=${LEAD}>
    <${Section} title="No kinds of snapshots are configured">
      <${Empty} title="Try it with a simulated game" command="tidegate simulate game --port 9200">
        It prints its address and its key. Set them as <code>TIDEGATE_SNAPSHOTS__GAME__URL</code> and
        <code>TIDEGATE_SNAPSHOTS__GAME__API_KEY</code>, or your own kinds as <code>TIDEGATE_SNAPSHOTS__KINDS</code>,
        and restart this process.
      <//>
    <//>
  <//>`;
}

const named = (series, prefix, label) =>
  series && series
    .filter(({ name }) => name.startsWith(prefix))
    .map(({ name, points }) => ({ label: label(name.slice(prefix.length)), points }));

/** A constant series with the same time range as the others. */
function withLimit(series, limit) {
  const times = series.flatMap(({ points }) => points.map(([at]) => at));
  if (!limit || times.length === 0) return series;
  return [...series, { label: "Limit", points: [[Math.min(...times), limit], [Math.max(...times), limit]] }];
}

const SPANS = { 1: "second", 60: "minute", 3600: "hour", 86400: "day" };
const span = (seconds) => SPANS[seconds] ?? `${number(seconds)} s`;
