// Lists the parts of an answer that are missing because a server is unavailable, so that they are not taken for zero.

import { html } from "../view.js";
import { partName } from "../words.js";
import { Notice } from "./notice.js";

/** `of` is an answer with `unknown: [{part, reason}]`, or null. Parts with the same reason are shown together. */
export function Unknown({ of }) {
  const parts = new Map();
  const unknown = of?.unknown ?? [];
  for (const { part, reason } of unknown) parts.set(reason, [...(parts.get(reason) ?? []), partName(part)]);
  return [...parts].map(([reason, names]) => html`<${Notice}
    key=${reason}
    kind="warning"
    title=${`Currently unknown: ${names.join(", ")}`}
  >
    ${reason}
  <//>`);
}
