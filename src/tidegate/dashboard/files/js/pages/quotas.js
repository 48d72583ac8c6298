// Quotas: the remaining calls of each credential, the reset times, and the history of windows.

import { pointsOf, useHistory } from "../history.js";
import { useFetched, useTopic } from "../live.js";
import {
  Badge,
  Chart,
  ChartRange,
  count,
  Empty,
  Meter,
  moment,
  Notice,
  number,
  Page,
  Pager,
  Problem,
  Section,
  Table,
  Tile,
  Tiles,
  usePages,
  When,
  useChartRange,
} from "../parts/index.js";
import { html, useMemo, useState } from "../view.js";
import { whyWaits } from "../words.js";

const SERIES = ["quota/"];
const MOST_DRAWN = 8;
const BUSY = ["concurrency", "probing"];

export function Quotas() {
  const topic = useTopic("quotas");
  const pages = usePages("/v1/quotas");
  const further = useFetched(pages.isFirst ? null : pages.path);
  const shown = pages.isFirst ? topic : further;
  const range = useChartRange();
  const { series } = useHistory(SERIES, range.length);
  const pools = shown.value?.pools.filter((pool) => pool.allowances.length > 0 || waitingIn(pool) > 0);
  const isMany = (pools ?? []).flatMap((pool) => pool.allowances).length > MOST_DRAWN;
  return html`<${Page}
    title="Quotas"
    lead="The remaining quota of each credential, and why calls wait."
    live=${pages.isFirst ? topic : undefined}
    actions=${html`<${ChartRange} range=${range} />`}
  >
    <${Problem} of=${shown.problem} retry=${further.reload} />
    ${pools && html`<${Figures} pools=${pools} />`}
    ${pools?.length === 0 && html`<${NoCredentials} />`}
    ${pools?.map((pool) => html`<${Pool}
      key=${pool.pool}
      pool=${pool}
      isOnly=${pools.length === 1}
      isOneOfMany=${isMany}
      series=${series}
      at=${topic.at}
    />`)}
    <${Pager} pages=${pages} next=${shown.value?.next} label="pools" />
  <//>`;
}

function NoCredentials() {
  return html`<${Empty} title="No credential has made a call yet" command="tidegate credentials add">
    Add one on <a href="#/credentials">the page of credentials</a>, or set <code>GITHUB_TOKEN</code> before the start.
  <//>`;
}

function Figures({ pools }) {
  const allowances = pools.flatMap((pool) => pool.allowances);
  const buckets = allowances.flatMap((one) => one.buckets);
  const resting = allowances.filter(isResting);
  const waiting = pools.reduce((sum, pool) => sum + waitingIn(pool), 0);
  const [next] = buckets.flatMap((bucket) => bucket.opens_at ?? []).map(moment).sort((one, other) => one - other);
  return html`<${Tiles} label="Quotas at a glance">
    <${Tile} label="Allowances" value=${number(allowances.length)} note=${`in ${count(pools.length, "pool")}`} />
    <${Tile}
      label="At rest"
      value=${number(resting.length)}
      note=${resting.length ? "wait for their window" : "all can call"}
      kind=${resting.length ? "warning" : undefined}
    />
    <${Tile}
      label="Calls in progress"
      value=${number(allowances.reduce((sum, one) => sum + one.in_flight, 0))}
      note=${`of ${number(allowances.reduce((sum, one) => sum + one.concurrency, 0))} at once`}
    />
    <${Tile}
      label="Waiting jobs"
      value=${number(waiting)}
      note=${waiting ? html`next opening <${When} at=${next} none="not known" />` : "for a permit"}
    />
  <//>`;
}

function Pool({ pool, isOnly, isOneOfMany, series, at }) {
  const waits = Object.entries(pool.waiting).filter(([, jobs]) => jobs > 0);
  return html`<div class="stack-wide">
    ${(!isOnly || waits.length > 0) && html`<div class="section-head">
      <h2 class="pool-name">Pool <span class="mono">${pool.pool}</span></h2>
      <p class="section-note">
        ${waits.length > 0 ? `Waiting: ${waits.map(inWords).join(", ")}.` : "Nothing waits."}
      </p>
    </div>`}
    ${pool.allowances.length === 0 && html`<${Notice} kind="critical" title="No credential serves this pool">
      Its jobs wait until <a href="#/credentials">one is added</a>.
    <//>`}
    ${pool.allowances.map((one) => html`<${Allowance}
      key=${one.name}
      of=${one}
      series=${series}
      at=${at}
      isOneOfMany=${isOneOfMany}
    />`)}
  </div>`;
}

const inWords = ([bucket, jobs]) => `${count(jobs, "job")} for ${bucket}`;

const isResting = (one) => one.is_retired || one.blocked_until || one.buckets.some(isUsedUp);

/** Whether a credential must wait for longer than the end of a call in progress. */
const isUsedUp = ({ reason }) => reason !== null && !BUSY.includes(reason);

function Allowance({ of, series, at, isOneOfMany }) {
  const [isDrawn, draw] = useState(!isOneOfMany);
  const names = of.credentials.length > 0 ? of.credentials.join(", ") : of.name;
  return html`<${Section}
    title=${names}
    note=${of.credentials.length > 1 ? "They share one allowance." : null}
    aside=${html`<${Standing} of=${of} />`}
  >
    <${Table}
      caption=${`Allowance of ${names}`}
      columns=${COLUMNS}
      rows=${of.buckets}
      rowKey=${(bucket) => bucket.name}
      empty="No call was made yet. The quota is read from the first answer."
    />
    ${isDrawn && html`<div class="charts">
      ${of.buckets.map((bucket) => html`<${Left}
        key=${bucket.name}
        of=${of}
        bucket=${bucket}
        series=${series}
        at=${at}
      />`)}
    </div>`}
    ${!isDrawn && html`<button type="button" class="button button-small" onClick=${() => draw(true)}>
      Show ${names} over time
    </button>`}
  <//>`;
}

/** The remaining quota of one bucket over time, with its windows; the last point is the current value. */
function Left({ of, bucket, series, at }) {
  const points = useMemo(() => {
    return series && upToNow(pointsFor(series, of, bucket), at, bucket.left);
  }, [series, at, of.name, bucket]);
  const drawn = useMemo(() => points && [{ label: "left", points }], [points]);
  return html`<${Chart}
    title=${`${bucket.name} over time`}
    unit="calls"
    height=${132}
    series=${drawn}
    isStep
    most=${bucket.limit ?? undefined}
    marks=${marksOf(points ?? [], bucket.resets_at)}
    empty="Points appear as calls are made."
  />`;
}

function Standing({ of }) {
  return html`<span class="quiet">${number(of.in_flight)} of ${number(of.concurrency)} calls in progress</span>
    ${of.is_retired && html`<${Badge} state="retired" />`}
    ${of.blocked_until && html`<span class="row">
      <${Badge} state="blocked" />opens <${When} at=${of.blocked_until} />
    </span>`}`;
}

const COLUMNS = [
  { head: "Bucket", shrink: true, cell: (bucket) => bucket.name },
  {
    head: "Left",
    wide: true,
    cell: (bucket) => (bucket.limit === null ? html`<span class="quiet">not known yet</span>` : html`<${Meter}
      value=${bucket.left ?? 0}
      most=${bucket.limit}
      label=${`Left of ${bucket.name}`}
      isWorrying=${isUsedUp(bucket)}
    />`),
  },
  {
    head: html`<span title="Permits in use, and calls with unknown outcome">Held</span>`,
    number: true,
    hideOnPhone: true,
    cell: (bucket) => (bucket.remaining === null ? "–" : number(bucket.remaining - bucket.left)),
  },
  {
    head: "State",
    shrink: true,
    cell: (bucket) => (bucket.reason ? html`<${Badge} state=${bucket.reason} />` : html`<${Badge} state="open" />`),
  },
  {
    head: "Why",
    hideOnPhone: true,
    cell: (bucket) => html`<${Why} of=${bucket} />`,
  },
  { head: "Window ends", number: true, cell: (bucket) => html`<${When} at=${bucket.resets_at} none="no window" />` },
];

function Why({ of: { reason, left, opens_at } }) {
  if (!reason) return html`<span class="quiet">calls can be made</span>`;
  const hasReserve = reason === "exhausted" && left > 0;
  const why = hasReserve ? `used up; the last ${number(left)} are kept in reserve` : whyWaits(reason);
  return html`${why}${opens_at && html`, opens <${When} at=${opens_at} />`}`;
}

/** Series have the name of the credential, or of the allowance if several credentials share one. */
function pointsFor(series, of, bucket) {
  for (const name of [of.name, ...of.credentials]) {
    const points = pointsOf(series, `quota/${name}/${bucket.name}`);
    if (points.length > 0) return points;
  }
  return [];
}

function upToNow(points, at, left) {
  const seconds = at / 1000;
  return left === null || seconds <= (points.at(-1)?.[0] ?? 0) ? points : [...points, [seconds, left]];
}

/** The start times of windows, seen and expected. */
function marksOf(points, resetsAt) {
  const most = points.reduce((found, [, left]) => Math.max(found, left), 0);
  // Returned permits raise the value by a few; a new window raises it by much.
  const isRefill = ([, left], place) => place > 0 && left - points[place - 1][1] > most / 4;
  const seen = points.filter(isRefill).map(([at]) => ({ at, label: "refilled" }));
  return resetsAt ? [...seen, { at: moment(resetsAt) / 1000, label: "window ends" }] : seen;
}

function waitingIn(pool) {
  return Object.values(pool.waiting).reduce((sum, jobs) => sum + jobs, 0);
}
