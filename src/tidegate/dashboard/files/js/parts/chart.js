// Line charts by uPlot, with a text alternative.

import uPlot from "../../vendor/uplot.js";
import { useShared } from "../state.js";
import { theme } from "../theme.js";
import { html, useEffect, useMemo, useRef, useState } from "../view.js";
import { clockTime, compact, rate } from "./format.js";
import { Empty } from "./notice.js";

const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];
const COLOURS = 6;
const FEWEST_POINTS = 2;
const SHORT_S = 300;
const DAY_S = 86_400;
const LONG_S = 4 * DAY_S;
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const LEAST_SPAN_S = 60;
const HEADROOM = 1.12; // space for the labels of marks above the line
const NO_MARKS = [];

/**
 * @param title heading of the chart; `unit` of its values: "jobs"
 * @param series [{label, points: [[seconds, value]…]}]; null until they are loaded
 * @param height of the drawing in px
 * @param isStep whether a value holds until the next point, such as a remaining quota
 * @param most upper end of the scale, if it is known
 * @param marks times with a vertical line, earliest first: [{at: seconds, label}]; a future one only if there is space
 * @param empty text while there are no points
 */
export function Chart({ title, unit = "", series, height = 160, empty = "Points appear after changes.", ...drawn }) {
  const [cursor, point] = useState(null);
  const shown = series ?? [];
  const hasPoints = shown.some((one) => one.points.length >= FEWEST_POINTS);
  return html`<figure class="chart">
    <figcaption class="chart-head">
      <span class="chart-title">${title}</span>
      ${cursor !== null && html`<span class="chart-at">${atCursor(cursor, shown)}</span>`}
      <${Legend} series=${shown} unit=${unit} at=${cursor} />
    </figcaption>
    ${hasPoints
      ? html`<${Drawing} ...${{ ...drawn, title, unit, series: shown, height, point }} />`
      : html`<div class="chart-none" style=${{ minHeight: `${height}px` }}>
        ${series === null && html`<span class="skeleton"></span>`}
        ${series && html`<${Empty} title="No data yet">${empty}<//>`}
      </div>`}
  </figure>`;
}

function atCursor(seconds, series) {
  const first = Math.min(...series.map((one) => one.points[0]?.[0] ?? Infinity));
  const isLong = Date.now() / 1000 - first > DAY_S;
  return isLong ? dayAndHour(seconds) : exactTime(seconds);
}

function Legend({ series, unit, at }) {
  return html`<ul class="chart-legend">
    ${series.map((one, place) => html`<li key=${one.label}>
      <span class="chart-line line-${place % COLOURS} dash-${Math.floor(place / COLOURS) % DASHES.length}"></span>
      <span>${one.label}</span> <strong>${rate(valueAt(one.points, at))}</strong>
      ${unit && html`<span class="quiet">${unit}</span>`}
    </li>`)}
  </ul>`;
}

function Drawing({ title, unit, series, height, isStep = false, most, marks = NO_MARKS, point }) {
  const box = useRef(null);
  const chart = useRef(null);
  const colours = useShared(theme);
  const labels = series.map((one) => one.label).join("\n");
  const data = useMemo(() => joined(series), [series]);
  const marked = useRef(marks);
  marked.current = marks;
  useEffect(() => {
    const width = box.current.clientWidth;
    const made = new uPlot(optionsOf({ series, width, height, isStep, most, marked, point }), data, box.current);
    chart.current = made;
    const look = new ResizeObserver(([{ contentRect }]) => made.setSize({ width: contentRect.width, height }));
    look.observe(box.current);
    return () => {
      look.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, [labels, height, isStep, most, colours]);
  useEffect(() => chart.current?.setData(data), [data]);
  return html`<div class="chart-box" ref=${box} role="img" aria-label=${inWords(title, unit, series)}></div>`;
}

function optionsOf({ series, width, height, isStep, most, marked, point }) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const grid = { stroke: colour("grid"), width: 1 };
  const axis = { stroke: colour("quiet"), font: `11px ${colour("font")}`, grid, ticks: { show: false } };
  return {
    width,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    padding: [8, 24, 0, 0],
    scales: {
      x: { range: (_, first, last) => [Math.min(first, last - LEAST_SPAN_S), upTo(first, last, marked.current)] },
      y: { range: (_, low, high) => [0, HEADROOM * (most ?? Math.max(1 / HEADROOM, high))] },
    },
    axes: [
      {
        ...axis,
        size: 24,
        space: 56,
        values: (_, times) => times.map(timeOf(times.at(-1) - times[0])),
      },
      {
        ...axis,
        size: 44,
        space: 26,
        values: (_, values) => values.map((value) => (value < 1000 ? rate(value) : compact(value))),
      },
    ],
    series: [{}, ...series.map((one, place) => lineOf(one, place, { isStep, isAlone: series.length === 1, colour }))],
    hooks: {
      draw: [(made) => drawMarks(made, marked.current, colour("quiet"))],
      setCursor: [(made) => point(made.data[0][made.cursor.idx ?? -1] ?? null)],
    },
  };
}

function lineOf({ label }, place, { isStep, isAlone, colour }) {
  const stroke = colour(`line-${place % COLOURS}`);
  return {
    label,
    stroke,
    width: 1.75,
    dash: DASHES[Math.floor(place / COLOURS) % DASHES.length],
    fill: isAlone ? `color-mix(in srgb, ${stroke} 12%, transparent)` : undefined,
    spanGaps: true,
    points: { show: false },
    paths: isStep ? uPlot.paths.stepped({ align: 1 }) : undefined,
  };
}

/** The end of the time scale: future marks are included if they need at most half of it. */
function upTo(first, last, marks) {
  const soon = marks.map(({ at }) => at).filter((at) => at > last && at - last <= last - first);
  return Math.max(last, ...soon);
}

function drawMarks(made, marks, colour) {
  const { ctx, bbox } = made;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.font = `${10 * devicePixelRatio}px sans-serif`;
  ctx.textAlign = "left";
  let free = bbox.left;
  for (const { at, label } of marks) {
    const left = Math.round(made.valToPos(at, "x", true));
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    const wide = ctx.measureText(label).width + 8 * devicePixelRatio;
    const begin = left + wide > bbox.left + bbox.width ? left - wide : left + 4 * devicePixelRatio;
    if (begin < free) continue; // labels must not overlap: this mark gets none
    ctx.fillText(label, begin, bbox.top + 10 * devicePixelRatio);
    free = begin + wide;
  }
  ctx.restore();
}

function joined(series) {
  const tables = series.map(({ points }) => [points.map(([at]) => at), points.map(([, value]) => value)]);
  return tables.length === 1 ? tables[0] : uPlot.join(tables);
}

function valueAt(points, at) {
  if (at === null) return points.at(-1)?.[1] ?? null;
  return points.findLast(([when]) => when <= at)?.[1] ?? null;
}

function inWords(title, unit, series) {
  const told = series.filter(({ points }) => points.length > 0).map(({ label, points }) => {
    const values = points.map(([, value]) => value);
    const extremes = `lowest ${rate(Math.min(...values))}, highest ${rate(Math.max(...values))}`;
    return `${label}: now ${rate(values.at(-1))} ${unit}, ${extremes}, since ${exactTime(points[0][0])}`;
  });
  return `${title}. ${told.join(". ")}`;
}

/** How times are written on an axis with this many seconds. */
function timeOf(span) {
  if (span < SHORT_S) return exactTime;
  return span < DAY_S ? hourAndMinute : span < LONG_S ? dayAndHour : dayAndMonth;
}

const exactTime = (seconds) => clockTime(seconds * 1000);

const hourAndMinute = (seconds) => exactTime(seconds).slice(0, 5);

const dayAndMonth = (seconds) => day.format(seconds * 1000);

const dayAndHour = (seconds) => `${dayAndMonth(seconds)} ${hourAndMinute(seconds)}`;
