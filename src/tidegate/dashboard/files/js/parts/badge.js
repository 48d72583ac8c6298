// A state as a word with a shape and a colour; the word is readable without colours.

import { html } from "../view.js";
import { words } from "./format.js";
import { Icon } from "./icon.js";

const ICONS = { good: "check", busy: "play", wait: "clock", warn: "alert", bad: "cross", idle: "minus", info: "info" };
const STATES = {
  good: "completed succeeded up open valid active enabled leader alive processed stored",
  busy: "running planning finalizing retried probing trying",
  wait: "ready enqueued waiting retrying pending postponed minute concurrency resting created soon",
  warn: "warning exhausted blocked unavailable lost degraded",
  bad: "failed critical dead away invalid retired no_credential",
  info: "info",
  idle: "canceled closed paused disabled stopped over deleted",
};
const KINDS = new Map(
  Object.entries(STATES).flatMap(([kind, states]) => states.split(" ").map((state) => [state, kind])),
);

/** `state` is the word of the API; `kind` and `label` override its meaning. */
export function Badge({ state, kind, label }) {
  const shown = kind ?? KINDS.get(state) ?? "idle";
  return html`<span class="badge badge-${shown}">
    <${Icon} name=${ICONS[shown]} size=${12} />${label ?? words(state)}
  </span>`;
}
