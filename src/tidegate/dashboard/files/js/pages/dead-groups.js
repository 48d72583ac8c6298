// Dead letters of one kind, grouped by cause; a group is replayed or discarded in batches.

import { Action, count, number, Notice, Section, Table, When } from "../parts/index.js";
import { html } from "../view.js";

const AT_ONCE = 200;

/** `kind` is one of `KINDS`; `isIncomplete`: there are more dead letters than those in the groups. */
export function DeadGroups({ kind, groups, isIncomplete, reload }) {
  return html`<${Section} title="By cause" note="Dead letters with the same source and reason, the largest group first">
    ${isIncomplete && html`<${Notice} title="Not all are grouped">
      There are more than 10,000 dead letters of this kind. The groups contain the oldest ones.
    <//>`}
    <${Table}
      stacks
      caption=${`Groups of dead letters: ${kind.label}`}
      columns=${columnsOf(kind, reload)}
      rows=${groups}
    />
  <//>`;
}

const columnsOf = (kind, reload) => [
  { head: "Reason", wide: true, cell: (group) => html`<span class="reason" title=${group.example}>
    ${group.reason || "none given"}
  </span>` },
  { head: "What", shrink: true, cell: (group) => html`<code>${group.name}</code>` },
  { head: "Source", shrink: true, hideOnPhone: true, cell: (group) => group.source || html`<span class="quiet">–</span>` },
  { head: "Dead letters", number: true, cell: (group) => number(group.count) },
  { head: "Newest", number: true, cell: (group) => html`<${When} at=${group.newest} />` },
  { head: "Actions", shrink: true, cell: (group) => html`<div class="row-actions">
    <${Settle} ...${{ group, reload }} label="Replay" icon="retry" path="replay" consequence=${kind.replay} />
    ${group.can_discard && html`<${Settle}
      ...${{ group, reload }}
      label="Discard"
      danger
      path="discard"
      consequence=${kind.discard}
    />`}
  </div>` },
];

function Settle({ group, label, path, consequence, reload, ...looks }) {
  return html`<${Action}
    ...${looks}
    small
    label=${label}
    name=${`${label} group: ${group.reason || "no reason"}`}
    confirm=${`${label} ${number(group.count)}`}
    question=${`${label} ${count(group.count, "dead letter", "dead letters")}?`}
    consequence=${`Reason: ${group.reason || "none given"}. For each one: ${consequence} Those that are added meanwhile stay.`}
    path=${`/v1/dead-letters/groups/${encodeURIComponent(group.id)}/${path}`}
    body=${{ limit: Math.min(AT_ONCE, group.count) }}
    next=${(answers) => nextBatch(group, answers)}
    done=${(answers) => summary(answers, path)}
    onDone=${reload}
  />`;
}

/** The next batch; null once as many were processed as the group had, or if there are no more. */
function nextBatch(group, answers) {
  const rest = group.count - processed(answers);
  const after = answers.at(-1).next_after;
  return rest > 0 && after ? { after, limit: Math.min(AT_ONCE, rest) } : null;
}

function summary(answers, path) {
  const total = (field) => answers.reduce((sum, answer) => sum + answer[field], 0);
  const stayed = total("stayed");
  const stay = stayed ? ` ${number(stayed)} stayed: they are in progress, or were settled by another caller.` : "";
  return `${number(total("settled"))} ${path === "replay" ? "replayed" : "discarded"}.${stay}`;
}

const processed = (answers) => answers.reduce((sum, { settled, stayed }) => sum + settled + stayed, 0);
