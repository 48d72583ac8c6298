// Components shared by the list of campaigns and the page of one campaign.

import { fromMoment, given, toMoment, toNumber } from "../fields.js";
import { now } from "../clock.js";
import { Action, Badge, Field, moment, number, Progress, When } from "../parts/index.js";
import { html } from "../view.js";

export const pathOf = (campaign) => `/v1/campaigns/${encodeURIComponent(campaign.id)}`;

/** The state of a campaign with its start or end time. */
export function CampaignState({ of }) {
  const isOpen = of.state === "open";
  const [shown, word, at] = isOpen && moment(of.starts_at) > now() ? ["soon", "starts", of.starts_at]
    : isOpen && moment(of.ends_at) <= now() ? ["over", "ended", of.ends_at]
    : [of.state, "ends", isOpen ? of.ends_at : null];
  return html`<${Badge} state=${shown} />${at && html` <span class="quiet">${word} <${When} at=${at} /></span>`}`;
}

/** How much of the stock is issued. */
export function Issued({ of }) {
  if (of.stock === null) return html`${number(of.issued)} <span class="quiet">issued, no bound</span>`;
  return html`<${Progress}
    done=${of.issued}
    most=${of.stock}
    label=${`Issued of ${of.id}`}
    text=${`${number(of.issued)} of ${number(of.stock)}`}
  />`;
}

export function StartOrStop({ of, small = false, onDone }) {
  if (of.state === "open") {
    return html`<${Action}
      label="Stop"
      name=${`Stop campaign ${of.id}`}
      icon="pause"
      small=${small}
      danger
      question=${`Stop campaign ${of.id}?`}
      consequence="Users can no longer enter. Accepted entries are still processed. It can be started again."
      path=${`${pathOf(of)}/stop`}
      done=${`Campaign ${of.id} is stopped.`}
      onDone=${onDone}
    />`;
  }
  return html`<${Action}
    label="Start"
    name=${`Start campaign ${of.id}`}
    icon="play"
    small=${small}
    question=${`Start campaign ${of.id}?`}
    consequence="Users can enter from the start until the end. Empty fields stay unchanged."
    path=${`${pathOf(of)}/start`}
    body=${toTimes}
    done=${`Campaign ${of.id} is started.`}
    onDone=${onDone}
  >
    <${Field}
      label="Start"
      name="starts_at"
      kind="datetime-local"
      defaultValue=${fromMoment(of.starts_at)}
      hint="In your time zone; empty: now, or unchanged."
    />
    <${Field}
      label="End"
      name="ends_at"
      kind="datetime-local"
      defaultValue=${fromMoment(of.ends_at)}
      hint="Empty: when it is stopped, or unchanged."
    />
  <//>`;
}

export function NewCampaign() {
  return html`<${Action}
    label="New campaign"
    icon="plus"
    primary
    question="New campaign"
    consequence="No user can enter until it is started."
    confirm="Create"
    path="/v1/campaigns"
    body=${toCampaign}
    done=${(made) => `Campaign ${made.id} is made.`}
  >
    <${Field}
      label="Id"
      name="id"
      required
      pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*"
      placeholder="autumn"
      hint="Part of URLs; cannot be changed."
    />
    <${Field}
      label="Kind"
      name="kind"
      required
      defaultValue="FIRST_COME"
      pattern="[A-Za-z][A-Za-z0-9_]*"
      hint="FIRST_COME: coupons for the first N users. POINTS: points for each user, once. Or a custom kind."
    />
    <${Field}
      label="Entries expected"
      name="total_count"
      kind="number"
      min="1"
      required
      defaultValue="100"
      hint="For FIRST_COME also the stock, unless one is given."
    />
    <${Field} label="Stock" name="stock" kind="number" min="0" hint="Maximum number of items issued." />
    <${Field} label="Points" name="points" kind="number" min="0" hint="Points per user of a POINTS campaign." />
    <${Field} label="Title" name="title" hint="Shown to users." />
  <//>`;
}

/** The dialog that changes a campaign, also while it runs. */
export function ChangeCampaign({ of, onDone }) {
  return html`<${Action}
    label="Change"
    name=${`Change campaign ${of.id}`}
    question=${`Change campaign ${of.id}`}
    consequence="Changes apply at once. The stock cannot be lower than the number issued; waiting entries beyond it are rejected."
    confirm="Change"
    method="PUT"
    path=${pathOf(of)}
    body=${changeOf(of)}
    done=${`Campaign ${of.id} is changed.`}
    onDone=${onDone}
  >
    <${Field} label="Title" name="title" defaultValue=${of.title} />
    <${Field}
      label="Entries expected"
      name="total_count"
      kind="number"
      min="1"
      required
      defaultValue=${of.total_count}
    />
    <${Field}
      label="Stock"
      name="stock"
      kind="number"
      min=${of.issued}
      defaultValue=${of.stock ?? ""}
      hint=${of.kind === "FIRST_COME" ? `At least ${number(of.issued)}, the number issued.` : "Empty: unlimited."}
    />
    <${Field}
      label="End"
      name="ends_at"
      kind="datetime-local"
      defaultValue=${fromMoment(of.ends_at)}
      hint="In your time zone; empty: when it is stopped."
    />
  <//>`;
}

const toTimes = (fields) => given({ starts_at: toMoment(fields.starts_at), ends_at: toMoment(fields.ends_at) });

const toCampaign = ({ id, kind, total_count, stock, points, title }) =>
  given({
    id: id.trim(),
    kind: kind.trim(),
    total_count: toNumber(total_count),
    stock: toNumber(stock),
    points: toNumber(points),
    title,
  });

/** Only changed fields; times have a resolution of one minute here. */
const changeOf = (before) => (fields) => ({
  ...(fields.title !== before.title && { title: fields.title }),
  ...(toNumber(fields.total_count) !== before.total_count && { total_count: toNumber(fields.total_count) }),
  ...(toNumber(fields.stock) !== before.stock && { stock: toNumber(fields.stock) }),
  ...(fields.ends_at !== fromMoment(before.ends_at) && { ends_at: toMoment(fields.ends_at) }),
});
