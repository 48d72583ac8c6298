// Dead letters of all kinds, with reasons and actions.

import { useFetched, useTopic } from "../live.js";
import {
  Action,
  count,
  Empty,
  Icon,
  Notice,
  number,
  Page,
  Pager,
  Problem,
  Section,
  Table,
  Tabs,
  Unknown,
  usePages,
  Verbatim,
  When,
} from "../parts/index.js";
import { html, useState } from "../view.js";
import { DeadGroups } from "./dead-groups.js";
import { KINDS, replayedAll, settled } from "./dead-kinds.js";

const LEAD = "Work that failed permanently. Replay or discard it; nothing here is retried automatically.";

export function Dead({ rest: [wanted, part] }) {
  const live = useTopic("dead");
  const now = live.value;
  const known = now?.dead ?? [];
  const kind = wanted && KINDS[wanted] ? wanted : known.find((one) => one.count > 0)?.kind ?? "events";
  const counted = known.find((one) => one.kind === kind);
  const shown = Object.keys(KINDS).map((one) => (now ? known.find((found) => found.kind === one) : { kind: one }));
  const tabs = shown.filter(Boolean).map(({ kind: id, count: letters }) => ({
    id,
    label: KINDS[id].label,
    href: `#/dead/${id}`,
    count: letters,
    isGrave: letters > 0,
  }));
  return html`<${Page} title="Dead letters" lead=${LEAD} live=${live}>
    <${Problem} of=${live.problem} />
    <${Unknown} of=${now} />
    <${Tabs} label="Kinds of dead letters" tabs=${tabs} at=${kind} />
    ${wanted && now && !counted ? html`<${NotHere} kind=${wanted} />` : html`<${Kind}
      key=${`${kind}/${part}`}
      name=${kind}
      part=${part}
      counted=${counted}
    />`}
  <//>`;
}

function Kind({ name, part, counted }) {
  const groups = useFetched(`/v1/dead-letters/groups?kind=${encodeURIComponent(name)}`, [counted?.count]);
  const shown = (groups.value?.groups ?? []).filter((group) => !part || group.source === part);
  return html`${shown.length > 0 && html`<${DeadGroups}
      kind=${KINDS[name]}
      groups=${shown}
      isIncomplete=${groups.value.incomplete.length > 0}
      reload=${groups.reload}
    />`}
    <${Members} ...${{ name, part, counted }} changed=${groups.value} />`;
}

function Members({ name, part, counted, changed }) {
  const parts = counted?.parts ?? [];
  if (name !== "campaigns") return html`<${Letters} name=${name} total=${counted?.count} changed=${changed} />`;
  const campaign = part ?? (parts.length === 1 ? parts[0].name : null);
  if (campaign === null) return html`<${Campaigns} parts=${parts} isKnown=${Boolean(counted)} />`;
  return html`<${Letters}
    name=${name}
    part=${campaign}
    total=${parts.find((one) => one.name === campaign)?.count ?? counted?.count}
    changed=${changed}
  />`;
}

function Campaigns({ parts, isKnown }) {
  const columns = [
    { head: "Campaign", cell: (row) => html`<a href=${`#/dead/campaigns/${row.name}`}>${row.name}</a>` },
    { head: "Dead letters", number: true, cell: (row) => number(row.count) },
    { head: "Actions", shrink: true, cell: (row) => html`<${ReplayAll}
      kind=${KINDS.campaigns}
      part=${row.name}
      total=${row.count}
      small
    />` },
  ];
  return html`<${Section} title="Campaigns with dead letters" note=${KINDS.campaigns.meaning}>
    <${Table}
      columns=${columns}
      rows=${isKnown ? parts : null}
      rowKey=${(row) => row.name}
      caption="Campaigns with dead letters"
      empty=${html`<${None} />`}
    />
  <//>`;
}

function Letters({ name, part, total, changed }) {
  const kind = KINDS[name];
  const pages = usePages(kind.list(part));
  const { value, problem, reload } = useFetched(pages.path, [total, changed]);
  const [opened, open] = useState(null);
  const rows = value ? kind.rows(value) : problem ? [] : null;
  const columns = columnsOf({ kind, part, reload, opened, open });
  const title = part ? `${kind.label}: ${part}` : kind.label;
  return html`<${Section}
    title=${title}
    note=${kind.meaning}
    aside=${html`<${ReplayAll} ...${{ kind, part, total, reload, isEmpty: rows?.length === 0 }} />`}
  >
    <${Problem} of=${problem} retry=${reload} />
    <${Table}
      stacks
      columns=${columns}
      rows=${rows}
      caption=${`Dead letters: ${title}`}
      empty=${problem ? "They cannot be listed now." : html`<${None} />`}
      detail=${(row) => row.id === opened && html`<${Contents} of=${row} />`}
    />
    <${Pager} pages=${pages} next=${value?.next} label="dead letters" />
  <//>`;
}

const columnsOf = ({ kind, part, reload, opened, open }) => [
  { head: "Letter", cell: (row) => html`<button
    type="button"
    class="button-plain unfold"
    aria-expanded=${row.id === opened ? "true" : "false"}
    onClick=${() => open(row.id === opened ? null : row.id)}
  >
      <${Icon} name=${row.id === opened ? "minus" : "plus"} size=${14} /><span>${row.about}</span>
    </button>` },
  { head: "What", shrink: true, hideOnPhone: true, cell: (row) => html`<code>${row.what}</code>` },
  {
    head: "Reason",
    wide: true,
    cell: ({ reason, message }) => html`<span class="reason">${reason || "none given"}</span>
      ${message && html`<span class="quiet"> ${message}</span>`}`,
  },
  { head: "Tries", number: true, hideOnPhone: true, cell: (row) => number(row.tries) },
  { head: "When", cell: (row) => html`<${When} at=${row.at} />` },
  { head: "Actions", shrink: true, cell: (row) => html`<div class="row-actions">
      <${Action}
        label="Replay"
        name=${`Replay letter ${row.id}`}
        icon="retry"
        small
        question=${`Replay the dead letter of ${row.about}?`}
        consequence=${kind.replay}
        path=${`${kind.place(part, row.id)}/replay`}
        done=${settled}
        onDone=${reload}
      />
      ${kind.discard && html`<${Action}
        label="Discard"
        name=${`Discard letter ${row.id}`}
        small
        danger
        question=${`Discard the dead letter of ${row.about}?`}
        consequence=${kind.discard}
        method="DELETE"
        path=${kind.place(part, row.id)}
        done=${settled}
        onDone=${reload}
      />`}
    </div>` },
];

function ReplayAll({ kind, part, total, reload, isEmpty = false, small = false }) {
  const [after, goOn] = useState(null);
  const { path, body } = kind.replayAll(part, after);
  const what = total === 1 ? "the one dead letter" : total > 1 ? `all ${number(total)} dead letters` : "all dead letters";
  const done = (answer) => {
    goOn(answer.next_after ?? null);
    reload?.();
  };
  return html`<${Action}
    label="Replay all"
    name=${`Replay all: ${part ?? kind.label.toLowerCase()}`}
    icon="retry"
    small=${small}
    whyNot=${isEmpty ? "There is nothing to replay." : null}
    question=${`Replay ${what} of ${part ?? kind.label.toLowerCase()}?`}
    consequence=${`${kind.replay} Make sure first that the cause is resolved.`}
    path=${path}
    body=${body}
    done=${replayedAll}
    onDone=${done}
  />`;
}

function Contents({ of }) {
  return html`<div class="looked">
    <p class="quiet">Dead letter <code>${of.id}</code>, ${count(of.tries, "try", "tries")}. Secrets are hidden.</p>
    <${Verbatim} of=${of.contents ?? "No contents."} label=${`Contents of letter ${of.id}`} />
  </div>`;
}

const None = () => html`<${Empty} title="No dead letters">
  No work has failed permanently.
<//>`;

const NotHere = ({ kind }) => html`<${Notice} title="This kind does not exist here">
  This installation has no ${KINDS[kind]?.label.toLowerCase() ?? kind}.
<//>`;
