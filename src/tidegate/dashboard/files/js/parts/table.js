// Tables. On a phone the box scrolls sideways, and optional columns are hidden.

import { html, useEffect, useRef, useState } from "../view.js";

const WAITING_ROWS = 4;

/**
 * @param columns {head, cell: (row) => node, number?: true, hideOnPhone?: true, wide?: true, shrink?: true}; the first
 *   one names the row
 * @param rows null until they are loaded
 * @param empty placeholder for an empty table: a text or a node
 * @param caption what the table shows, for screen readers
 * @param rowKey (row) => key that identifies the row between updates; its `id` by default
 * @param detail (row) => node below the row, or null
 * @param stacks whether each row is shown as a list on a phone, instead of a scrolling box
 */
export function Table({ columns, rows, empty = "Nothing here.", caption, rowKey, detail, stacks = false }) {
  const [box, scrolls] = useScrolls(rows);
  if (rows && rows.length === 0) return html`<div class="table-empty">
    ${typeof empty === "string" ? html`<p>${empty}</p>` : empty}
  </div>`;
  const key = rowKey ?? ((row) => row.id ?? rows.indexOf(row));
  return html`<div
    class="table-box"
    ref=${box}
    tabindex=${scrolls ? 0 : undefined}
    role=${scrolls ? "group" : undefined}
    aria-label=${scrolls ? caption : undefined}
  >
    <table class=${stacks ? "stacks" : undefined} aria-busy=${rows === null || rows === undefined}>
      <caption class="unseen">${caption}</caption>
      <thead>
        <tr>${columns.map((column) => html`<th scope="col" class=${classes(column)}>${column.head}</th>`)}</tr>
      </thead>
      <tbody>
        ${rows ? rows.map((row) => html`<${Row}
          key=${key(row)}
          row=${row}
          columns=${columns}
          detail=${detail}
        />`) : waiting(columns)}
      </tbody>
    </table>
  </div>`;
}

function Row({ row, columns, detail }) {
  const below = detail?.(row);
  return html`<tr>
      ${columns.map((column, place) =>
        place === 0
          ? html`<th scope="row" class=${classes(column)}>${column.cell(row)}</th>`
          : html`<td class=${classes(column)} data-head=${headOf(column)}>${column.cell(row)}</td>`,
      )}
    </tr>
    ${below && html`<tr class="row-detail"><td colspan=${columns.length}>${below}</td></tr>`}`;
}

const headOf = ({ head }) => (typeof head === "string" ? head : undefined);

function waiting(columns) {
  return Array.from({ length: WAITING_ROWS }, (_, row) =>
    html`<tr key=${`waiting-${row}`}>
      ${columns.map((column) => html`<td class=${classes(column)}><span class="skeleton"></span></td>`)}
    </tr>`);
}

function classes({ number, hideOnPhone, wide, shrink }) {
  const names = { number, "not-on-phone": hideOnPhone, wide, shrink };
  return Object.keys(names).filter((name) => names[name]).join(" ");
}

/** A box that scrolls must be reachable with the keyboard. */
function useScrolls(rows) {
  const box = useRef(null);
  const [scrolls, found] = useState(false);
  useEffect(() => {
    if (!box.current) return undefined;
    const look = new ResizeObserver(([{ target }]) => found(target.scrollWidth > target.clientWidth + 1));
    look.observe(box.current);
    return () => look.disconnect();
  }, [rows === null || rows?.length === 0]);
  return [box, scrolls];
}
