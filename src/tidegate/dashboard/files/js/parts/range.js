// A selection of a time range: the last hours or days, or from and until a given time.

import { refine, useRoute } from "../router.js";
import { html, useMemo, useState } from "../view.js";
import { Choice, Field } from "./field.js";

const HOUR_MS = 3_600_000;
const CUSTOM = "custom";
const LENGTHS = { "1h": HOUR_MS, "6h": 6 * HOUR_MS, "24h": 24 * HOUR_MS, "7d": 168 * HOUR_MS, "30d": 720 * HOUR_MS };
const NAMES = { "1h": "Last hour", "6h": "Last 6 hours", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days" };

/**
 * The selected range: {choice, since, until, isWhole, select(change), query}. `since` and `until` are ISO times or null,
 * computed once when the range is selected; `query` has the parameters for the URL of the page, from which
 * `given` (URLSearchParams) restores it. `choice` is empty for all times.
 */
export function useTimeRange(given) {
  const [chosen, choose] = useState(() => ({
    choice: known(given.get("range")),
    from: given.get("from") ?? "",
    to: given.get("to") ?? "",
  }));
  const bounds = useMemo(() => boundsOf(chosen), [chosen]);
  return { ...chosen, ...bounds, isWhole: !bounds.since && !bounds.until, select: choose, query: queryOf(chosen) };
}

/** The field of a range from `useTimeRange`. */
export function TimeRange({ range, label = "Time range" }) {
  const { choice, from, to, select } = range;
  const change = (changed) => select({ choice, from, to, ...changed });
  const options = [["", "Any time"], ...Object.entries(NAMES), [CUSTOM, "From and until…"]];
  return html`<${Field}
      label=${label}
      hideLabel
      kind="select"
      options=${options}
      value=${choice}
      onChange=${(event) => change({ choice: event.target.value })}
    />
    ${choice === CUSTOM && html`<${Field}
        label="From"
        kind="datetime-local"
        value=${from}
        onChange=${(event) => change({ from: event.target.value })}
      />
      <${Field}
        label="Until"
        kind="datetime-local"
        value=${to}
        onChange=${(event) => change({ to: event.target.value })}
      />`}`;
}

const CHARTED = [["", "1 h"], ["6h", "6 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"]];

/** The range of the charts of a page, kept in its URL: {choice, length in ms or null, select}. */
export function useChartRange() {
  const { query } = useRoute();
  const given = query.get("charts") ?? "";
  const choice = CHARTED.some(([one]) => one === given) ? given : "";
  const select = (chosen) => {
    const changed = new URLSearchParams(query);
    changed.delete("charts");
    if (chosen) changed.set("charts", chosen);
    refine(changed);
  };
  return { choice, length: LENGTHS[choice] ?? null, select };
}

/** The choice of a range from `useChartRange`. */
export const ChartRange = ({ range }) => html`<${Choice}
  label="Range of the charts"
  options=${CHARTED}
  value=${range.choice}
  onChoose=${range.select}
/>`;

const known = (choice) => (choice === CUSTOM || choice in LENGTHS ? choice : "");

function boundsOf({ choice, from, to }) {
  if (choice === CUSTOM) return { since: isoOf(from), until: isoOf(to) };
  const length = LENGTHS[choice];
  return { since: length ? new Date(Date.now() - length).toISOString() : null, until: null };
}

/** The browser's local time, as typed, in UTC. */
function isoOf(local) {
  const at = new Date(local);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}

function queryOf({ choice, from, to }) {
  if (choice !== CUSTOM) return choice ? { range: choice } : {};
  return { range: choice, ...(from && { from }), ...(to && { to }) };
}
