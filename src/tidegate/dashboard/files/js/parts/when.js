// Relative times: "3 min ago", "in 12 s", updated as a countdown.

import { useNow } from "../clock.js";
import { html } from "../view.js";
import { duration, exactly, moment, roughly } from "./format.js";

const JUST_NOW_MS = 1500;

/** `none` is shown if there is no time. */
export function When({ at, none = "–" }) {
  const now = useNow();
  const ms = moment(at);
  if (Number.isNaN(ms)) return html`<span class="quiet">${none}</span>`;
  return html`<time datetime=${new Date(ms).toISOString()} title=${exactly(ms)}>${fromNow(ms - now)}</time>`;
}

/** The duration until the end, or until now: "12 s". */
export function Lasted({ from, to, none = "–" }) {
  const now = useNow();
  const began = moment(from);
  if (Number.isNaN(began)) return html`<span class="quiet">${none}</span>`;
  const ended = to ? moment(to) : now;
  return html`<span title=${`${exactly(began)} – ${to ? exactly(ended) : "now"}`}>${duration(ended - began)}</span>`;
}

function fromNow(ms) {
  if (Math.abs(ms) < JUST_NOW_MS) return "now";
  return ms > 0 ? `in ${duration(ms)}` : `${roughly(-ms)} ago`;
}
