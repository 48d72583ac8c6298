// One campaign: its status, its entries, and the entry of one user.

import { call } from "../api.js";
import { useFetched, useTopic } from "../live.js";
import {
  Badge,
  Chart,
  count,
  duration,
  exactly,
  Facts,
  Field,
  number,
  Page,
  Pager,
  Problem,
  Section,
  Table,
  Tile,
  Tiles,
  usePages,
  When,
} from "../parts/index.js";
import { useSeen } from "../seen.js";
import { html, useState } from "../view.js";
import { CampaignState, ChangeCampaign, Issued, StartOrStop } from "./campaign-parts.js";

const BACK = { href: "#/campaigns", label: "Campaigns" };
const OUTCOMES = { issued: "good", refused: "bad", sold_out: "warn", failed: "bad", pending: "wait", unknown: "idle" };

export function Campaign({ id }) {
  const path = `/v1/campaigns/${encodeURIComponent(id)}`;
  const live = useTopic("campaigns");
  const row = live.value?.campaigns.find((one) => one.id === id);
  const asked = useFetched(path, [JSON.stringify(row ?? null)]);
  const now = asked.value ?? (row && { campaign: row, depth: row.depth, dead: row.dead, entered: row.entered });
  if (!now) return html`<${Page}
    title=${`Campaign ${id}`}
    back=${BACK}
  >
    <${Problem} of=${asked.problem} retry=${asked.reload} />
  <//>`;
  const { campaign } = now;
  const actions = html`<${StartOrStop}
    of=${campaign}
    onDone=${asked.reload}
  /><${ChangeCampaign} of=${campaign} onDone=${asked.reload} />`;
  return html`<${Page}
    title=${`Campaign ${id}`}
    lead=${campaign.title}
    back=${BACK}
    live=${live}
    badge=${html`<${CampaignState} of=${campaign} />`}
    actions=${actions}
  >
    <${Problem} of=${asked.problem} retry=${asked.reload} />
    <${Figures} of=${now} />
    <${History} of=${now} at=${live.at} />
    <${Rules} of=${now} />
    <${Entry} path=${path} />
    <${Entries} path=${path} issued=${campaign.issued} />
  <//>`;
}

function Figures({ of: { campaign, depth, pending, lag, dead, processes, consumers, entered, idle_ms } }) {
  const left = Math.max(0, campaign.stock - campaign.issued);
  return html`<${Tiles} label="Status">
    <${Tile}
      label="Issued"
      value=${number(campaign.issued)}
      note=${campaign.stock === null ? "no bound" : `of ${number(campaign.stock)}; ${number(left)} left`}
    />
    <${Tile}
      label="Entered"
      value=${number(entered)}
      note=${entered === 0 ? "none yet" : idle_ms !== undefined && `the last ${duration(idle_ms)} ago`}
    />
    <${Tile} label="In line" value=${number(depth)} note=${`${number(pending)} in progress, ${number(lag)} not read yet`} />
    <${Tile}
      label="Processes"
      value=${number(processes?.length)}
      note=${processes?.length > 0 ? `processes, with ${count(consumers, "consumer")}` : "none: it is idle"}
    />
    <${Tile}
      label="Dead letters"
      value=${number(dead)}
      kind=${dead ? "critical" : undefined}
      note="entries that failed permanently"
      href=${`#/dead/campaigns/${campaign.id}`}
    />
  <//>`;
}

function History({ of, at }) {
  const { id } = of.campaign;
  const names = { entered: `campaign/${id}/entered`, depth: `campaign/${id}/depth`, issued: `campaign/${id}/issued` };
  const figures = { [names.entered]: of.entered, [names.depth]: of.depth, [names.issued]: of.campaign.issued };
  const seen = useSeen(figures, at);
  const series = [
    { label: "Entered", points: seen[names.entered] },
    { label: "Issued", points: seen[names.issued] },
    { label: "In line", points: seen[names.depth] },
  ];
  return html`<${Section} title="Over time" note="Since this page was opened."><${Chart}
    title=${`Entries of ${id}`}
    unit="entries"
    series=${series}
    isStep
    empty="Points appear here while this page is open."
  /><//>`;
}

function Rules({ of: { campaign, remembered, is_installed, is_woken } }) {
  return html`<${Section} title="Campaign">
    <${Facts} of=${[
      ["Kind", html`<code>${campaign.kind}</code>`, campaign.points > 0 && `${count(campaign.points, "point")} each`],
      ["Issued", html`<${Issued} of=${campaign} />`],
      ["Entries expected", number(campaign.total_count)],
      ["Start", campaign.starts_at ? html`${exactly(campaign.starts_at)}` : "as soon as it is started"],
      ["End", campaign.ends_at ? html`${exactly(campaign.ends_at)}` : "when it is stopped"],
      ["Users in the entry check", number(remembered), is_installed === false && "starts with the first entry"],
      is_woken && ["Wake-up pending", "yes", "the next free process takes it"],
      ["Made", html`<${When} at=${campaign.created_at} />`],
      ["Changed", html`<${When} at=${campaign.changed_at} />`],
    ]} />
  <//>`;
}

function Entry({ path }) {
  const [found, show] = useState({});
  const submit = async (event) => {
    event.preventDefault();
    const user = new FormData(event.target).get("user").trim();
    try {
      show({ value: await call("GET", `${path}/entries/${encodeURIComponent(user)}`) });
    } catch (problem) {
      show({ problem });
    }
  };
  return html`<${Section} title="One user">
    <form class="toolbar" onSubmit=${submit}>
      <${Field} label="User" name="user" required placeholder="ann" data-filter />
      <button type="submit" class="button button-primary">View</button>
    </form>
    ${found.problem && html`<${Problem} of=${found.problem} />`}
    ${found.value && html`<div class="looked" aria-live="polite"><${Result} of=${found.value} /></div>`}
  <//>`;
}

function Result({ of }) {
  return html`<${Facts} of=${[
    ["User", of.user],
    ["Entry", html`<${Badge}
      state=${of.state}
      kind=${OUTCOMES[of.state]}
      label=${of.state === "unknown" ? "has not entered" : undefined}
    />`],
    of.number !== null && ["Number", number(of.number)],
    of.code && ["Code", html`<code>${of.code}</code>`],
    of.points > 0 && ["Points", number(of.points)],
    of.reason && ["Reason", of.reason],
    of.decided_at && ["Decided", html`<${When} at=${of.decided_at} />`],
  ]} />`;
}

function Entries({ path, issued }) {
  const pages = usePages(`${path}/entries?limit=25`);
  const { value, problem, reload } = useFetched(pages.path, [pages.isFirst && issued]);
  const columns = [
    { head: "Number", number: true, shrink: true, cell: (row) => number(row.number) },
    { head: "User", cell: (row) => row.user },
    { head: "Outcome", cell: (row) => html`<${Badge} state=${row.outcome} kind=${OUTCOMES[row.outcome]} />` },
    {
      head: "Got",
      cell: (row) => (row.code ? html`<code>${row.code}</code>` : row.reason ?? count(row.points, "point")),
    },
    { head: "Decided", hideOnPhone: true, cell: (row) => html`<${When} at=${row.decided_at} />` },
  ];
  return html`<${Section} title="Entries" note="Processed entries, by number">
    <${Problem} of=${problem} retry=${reload} />
    <${Table}
      stacks
      columns=${columns}
      rows=${value?.entries ?? (problem ? [] : null)}
      rowKey=${(row) => `${row.number}/${row.user}`}
      caption="Processed entries"
      empty="No entries have been processed."
    />
    <${Pager} pages=${pages} next=${value?.next} label="entries" />
  <//>`;
}
