// Exports all shared components.

export { Action } from "./action.js";
export { Badge } from "./badge.js";
export { Chart } from "./chart.js";
export { Facts, Verbatim } from "./facts.js";
export { Choice, Field } from "./field.js";
export { clockTime, compact, count, duration, exactly, moment, number } from "./format.js";
export { percent, rate, sentence, title, words } from "./format.js";
export { Icon } from "./icon.js";
export { Meter, Progress } from "./meter.js";
export { Empty, Notice, Problem } from "./notice.js";
export { Columns, Liveness, Page, Section } from "./page.js";
export { Pager, usePages } from "./pager.js";
export { ChartRange, TimeRange, useChartRange, useTimeRange } from "./range.js";
export { RunState } from "./runstate.js";
export { Table } from "./table.js";
export { Tabs } from "./tabs.js";
export { Tile, Tiles } from "./tiles.js";
export { tell } from "./toast.js";
export { Unknown } from "./unknown.js";
export { Lasted, When } from "./when.js";
