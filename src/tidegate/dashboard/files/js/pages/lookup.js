// One subject of the snapshots: how fresh it is, and a refresh at once.

import { call } from "../api.js";
import { Action, Badge, Facts, Field, number, Problem, Section, Verbatim, When } from "../parts/index.js";
import { html, useState } from "../view.js";

const MOST_SHOWN = 4000;

/** The badge kind of each state. */
export const FRESHNESS = { fresh: "good", stale: "wait", updating: "busy", not_found: "idle", failed: "bad" };

export function Lookup({ kinds }) {
  const [subject, choose] = useState(null);
  const [found, show] = useState({});
  const look = async (path) => {
    try {
      show({ value: await call("GET", path) });
    } catch (problem) {
      show({ problem });
    }
  };
  const submit = (event) => {
    event.preventDefault();
    const { kind, key } = Object.fromEntries(new FormData(event.target));
    const path = `/v1/snapshots/${encodeURIComponent(kind)}/${encodeURIComponent(key.trim())}`;
    choose({ name: `${kind}/${key.trim()}`, path });
    look(path);
  };
  return html`<${Section}
    title="View a subject"
    note="Reading a stale snapshot queues its refresh"
  >
    <form class="toolbar" onSubmit=${submit}>
      <${Field} label="Kind" name="kind" kind="select" options=${kinds.map(({ name }) => [name, name])} />
      <${Field} label="Key" name="key" required placeholder="4711" data-filter />
      <button type="submit" class="button button-primary">View</button>
    </form>
    ${found.problem && html`<${Problem} of=${found.problem} />`}
    ${found.value && html`<${Subject}
      subject=${subject}
      of=${found.value}
      again=${() => look(`${subject.path}?wait=5`)}
    />`}
  <//>`;
}

function Subject({ subject, of, again }) {
  const wait = of.estimatedWaitMs;
  const text = of.snapshot === null ? null : JSON.stringify(of.snapshot, null, 2);
  return html`<div class="looked" aria-live="polite">
    <${Facts} of=${[
      ["Subject", html`<code>${subject.name}</code>`],
      ["Freshness", html`<${Badge}
        state=${of.freshness.toLowerCase()}
        kind=${FRESHNESS[of.freshness.toLowerCase()]}
      />`],
      ["Last changed", html`<${When} at=${of.lastUpdatedAt} none="never" />`],
      ["Last checked", html`<${When} at=${of.lastCheckedAt} none="never" />`],
      ["Refresh", of.updateQueued ? "queued" : "none is queued", wait !== null && `about ${number(wait)} ms`],
      of.failure && ["Failure", html`${of.failure.reason} <${When} at=${of.failure.failedAt} />`, of.failure.message],
      text && ["Size", `${number(text.length)} characters`],
    ]} />
    <div class="row-actions">
      <${Action}
        label="Refresh now"
        icon="retry"
        question=${`Refresh ${subject.name}?`}
        consequence="Requests the object once, within the limits, however fresh the snapshot is."
        path=${`${subject.path}/refresh`}
        done=${({ outcome }) => `A refresh of ${subject.name} is ${outcome === "queued" ? outcome : "in progress"}.`}
        onDone=${again}
      />
    </div>
    ${text && html`<${Verbatim}
      of=${text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}\n…` : text}
      label=${`Snapshot of ${subject.name}`}
    />`}
  </div>`;
}
