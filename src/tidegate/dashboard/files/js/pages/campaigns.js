// Campaigns: issued items and waiting entries.

import { useFetched, useTopic } from "../live.js";
import {
  Chart,
  count,
  Empty,
  number,
  Page,
  Pager,
  Problem,
  Section,
  Table,
  Tile,
  Tiles,
  usePages,
} from "../parts/index.js";
import { useSeen } from "../seen.js";
import { html } from "../view.js";
import { Campaign } from "./campaign.js";
import { CampaignState, Issued, NewCampaign, StartOrStop } from "./campaign-parts.js";

const LEAD = "Promotions with limited stock: each user can enter once.";
const MOST_LINES = 6;

export function Campaigns({ rest }) {
  return rest.length > 0 ? html`<${Campaign} id=${rest[0]} />` : html`<${List} />`;
}

function List() {
  const live = useTopic("campaigns");
  const pages = usePages("/v1/campaigns");
  const further = useFetched(pages.isFirst ? null : pages.path);
  const { value: now, problem } = pages.isFirst ? live : further;
  return html`<${Page} title="Campaigns" lead=${LEAD} live=${live} actions=${html`<${NewCampaign} />`}>
    <${Problem} of=${problem} />
    ${now?.campaigns.length > 0 && html`<${Figures} of=${now.campaigns} /><${InLine}
      of=${now.campaigns}
      at=${live.at}
    />`}
    <${Section}
      title="Campaigns"
      note=${now && pages.isFirst && !now.next ? count(now.campaigns.length, "campaign") : "By id"}
    >
      <${Table}
        stacks
        columns=${columnsOf(further.reload)}
        rows=${now?.campaigns ?? null}
        caption="Campaigns, by id"
        empty=${html`<${NoCampaigns} />`}
      />
      <${Pager} pages=${pages} next=${now?.next} label="campaigns" />
    <//>
  <//>`;
}

const columnsOf = (reload) => [
  {
    head: "Campaign",
    cell: ({ id, title }) => html`<a href=${`#/campaigns/${id}`}>${title || id}</a>
      <span class="quiet"> ${title && id}</span>`,
  },
  { head: "State", cell: (campaign) => html`<${CampaignState} of=${campaign} />` },
  { head: "Issued", wide: true, cell: (campaign) => html`<${Issued} of=${campaign} />` },
  { head: "In line", number: true, cell: (campaign) => number(campaign.depth) },
  { head: "Dead", number: true, cell: (campaign) => (campaign.dead ? html`<a
    href=${`#/dead/campaigns/${campaign.id}`}
    aria-label=${`${count(campaign.dead, "dead letter")} of ${campaign.id}`}
  >
    ${number(campaign.dead)}
  </a>` : number(campaign.dead)) },
  { head: "Kind", hideOnPhone: true, cell: (campaign) => html`<code>${campaign.kind}</code>` },
  { head: "Actions", shrink: true, cell: (campaign) => html`<${StartOrStop} of=${campaign} small onDone=${reload} />` },
];

function Figures({ of }) {
  const sum = (figure) => of.reduce((total, one) => total + (figure(one) ?? 0), 0);
  const dead = sum(({ dead }) => dead);
  return html`<${Tiles} label="Campaigns at a glance">
    <${Tile}
      label="Open"
      value=${number(of.filter(({ state }) => state === "open").length)}
      note="open for entries, within their times"
    />
    <${Tile} label="Issued" value=${number(sum(({ issued }) => issued))} note="by the campaigns shown here" />
    <${Tile} label="In line" value=${number(sum(({ depth }) => depth))} note="accepted, not processed yet" />
    <${Tile}
      label="Dead letters"
      value=${number(dead)}
      kind=${dead ? "critical" : undefined}
      note="entries that failed permanently"
      href="#/dead/campaigns"
    />
  <//>`;
}

function InLine({ of, at }) {
  const seen = useSeen(Object.fromEntries(of.flatMap(figuresOf)), at);
  const entered = of.filter((one) => one.entered > 0).sort((one, other) => other.entered - one.entered);
  const pointsOf = (id) => seen[`campaign/${id}/entered`] ?? [];
  const series = entered.slice(0, MOST_LINES).map(({ id }) => ({ label: id, points: pointsOf(id) }));
  return html`<${Section} title="Entries over time" note="Since this page was opened."><${Chart}
    title="Accepted entries"
    unit="entries"
    series=${series}
    isStep
    empty="Points appear here while this page is open."
  /><//>`;
}

const figuresOf = ({ id, entered, depth, issued }) => [
  [`campaign/${id}/entered`, entered],
  [`campaign/${id}/depth`, depth],
  [`campaign/${id}/issued`, issued],
];

const NoCampaigns = () =>
  html`<${Empty}
    title="There are no campaigns yet"
    command="tidegate campaign create autumn --kind FIRST_COME --total 100"
  >
    Create one here with “New campaign”, or with a command:
  <//>`;
