// What an answer does not contain because a server is away. Shown, so that it is not mistaken for zero.

import { html } from "../view.js";
import { partName } from "../words.js";
import { Notice } from "./notice.js";

/** `of` is an answer with `unknown: [{part, reason}]`, or null. What has the same reason is told together. */
export function Unknown({ of }) {
  const parts = new Map();
  const unknown = of?.unknown ?? [];
  for (const { part, reason } of unknown) parts.set(reason, [...(parts.get(reason) ?? []), partName(part)]);
  return [...parts].map(([reason, names]) => html`<${Notice}
    key=${reason}
    kind="warning"
    title=${`Not known now: ${names.join(", ")}`}
  >
    ${reason}
  <//>`);
}
