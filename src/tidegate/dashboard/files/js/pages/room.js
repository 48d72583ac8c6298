// One waiting room: its visitors, plan and draw.

import { useFetched, useTopic } from "../live.js";
import {
  Action,
  Chart,
  duration,
  exactly,
  Facts,
  Field,
  number,
  Page,
  Problem,
  rate,
  Section,
  Tile,
  Tiles,
  When,
} from "../parts/index.js";
import { useSeen } from "../seen.js";
import { html } from "../view.js";
import { figuresOf, isSoon, OpenOrClose, PlanFields, planChange, RoomState, toUsers } from "./room-parts.js";

const BACK = { href: "#/rooms", label: "Rooms" };

export function Room({ name }) {
  const path = `/v1/rooms/${encodeURIComponent(name)}`;
  const live = useTopic("rooms");
  const row = live.value?.rooms.find((one) => one.name === name);
  const asked = useFetched(path, [row?.state, row?.opens_at, JSON.stringify(row?.plan ?? null)]);
  const counts = row?.counts ?? asked.value?.counts;
  const room = (row || asked.value) && { seed: null, ...asked.value, ...row, counts };
  if (!room) {
    return html`<${Page}
      title=${`Room ${name}`}
      back=${BACK}
    >
      <${Problem} of=${asked.problem} retry=${asked.reload} />
    <//>`;
  }
  const actions = html`<${OpenOrClose}
    of=${room}
    onDone=${asked.reload}
  /><${Admit}
    of=${room}
    path=${path}
    onDone=${asked.reload}
  /><${Change} of=${room} path=${path} onDone=${asked.reload} />`;
  return html`<${Page}
    title=${`Room ${name}`}
    lead=${room.plan.title}
    back=${BACK}
    live=${live}
    badge=${html`<${RoomState} of=${room} />`}
    actions=${actions}
  >
    <${Problem} of=${asked.problem} retry=${asked.reload} />
    <${Figures} of=${room} />
    <${History} of=${room} at=${live.at} />
    <${Plan} of=${room} />
    <${Draw} of=${room} />
  <//>`;
}

function Figures({ of }) {
  const { counts, plan, opens_at } = of;
  const counted = counts && counts.active + counts.entering - counts.guests;
  return html`<${Tiles} label="Visitors">
    <${Tile}
      label="Waiting"
      value=${number(counts?.waiting)}
      note=${isSoon(of) ? "take part in the draw" : "in line"}
    />
    <${Tile} label="Entering" value=${number(counts?.entering)} note="admitted, not seen inside yet" />
    <${Tile}
      label="Inside"
      value=${number(counts?.active)}
      note=${`${number(counted)} of ${number(plan.capacity)} places taken`}
      kind=${plan.capacity > 0 && counted >= plan.capacity ? "warning" : undefined}
    />
    <${Tile} label="Guests" value=${number(counts?.guests)} note="in addition to the capacity" />
    <${Tile}
      label="Start"
      value=${html`<${When} at=${opens_at} none="none yet" />`}
      note=${opens_at ? exactly(opens_at) : "never opened"}
    />
  <//>`;
}

function History({ of, at }) {
  const [waiting, inside] = figuresOf(of);
  const seen = useSeen(Object.fromEntries([waiting, inside]), at);
  const series = [
    { label: "Waiting", points: seen[waiting[0]] },
    { label: "Inside or entering", points: seen[inside[0]] },
  ];
  return html`<${Section} title="Over time" note="Since this page was opened."><${Chart}
    title=${`People at ${of.name}`}
    unit="people"
    series=${series}
    isStep
    empty="Points appear here while this page is open."
  /><//>`;
}

function Plan({ of: { name, plan } }) {
  const page = `${location.origin}/rooms/${encodeURIComponent(name)}`;
  return html`<${Section} title="Plan" note="Changes apply at once to all processes, also during a sale">
    <${Facts} of=${[
      ["Capacity", number(plan.capacity), "inside at once"],
      ["Admissions", plan.admit_per_second === null ? "unlimited" : `${rate(plan.admit_per_second)} per second`],
      ["Session", duration(plan.session_s * 1000), "without activity"],
      ["Longest session", duration(plan.longest_session_s * 1000)],
      ["Abandoned after", duration(plan.abandon_after_s * 1000), "without a request while in line"],
      ["Entrance", plan.entrance ? html`<code>${plan.entrance}</code>` : "none"],
      ["Visitors", plan.anonymous ? "anonymous visitors may join" : "only visitors that your server adds"],
      ["Waiting page", html`<a href=${page} rel="noreferrer">${page}</a>`],
    ]} />
  <//>`;
}

function Draw({ of: { commitment, seed } }) {
  return html`<${Section} title="Draw" note="The draw can be verified by anyone">
    <${Facts} isWide of=${[
      ["SHA-256 of the seed", html`<code class="long">${commitment}</code>`],
      ["Seed", seed ? html`<code class="long">${seed}</code>` : "published at the start"],
    ]} />
  <//>`;
}

function Admit({ of, path, onDone }) {
  return html`<${Action}
    label="Admit users"
    name=${`Admit users to room ${of.name}`}
    question=${`Admit users to room ${of.name}?`}
    consequence="They are admitted at once, in addition to the capacity, even if they are not in line. This cannot be undone."
    confirm="Admit"
    path=${`${path}/admissions`}
    body=${toUsers}
    done=${({ admitted }) => `${number(admitted)} admitted; users that were inside before are not counted.`}
    onDone=${onDone}
  >
    <${Field}
      label="Users"
      name="users"
      kind="area"
      required
      placeholder="press@example.com"
      hint="One per line, at most 100."
    />
  <//>`;
}

function Change({ of, path, onDone }) {
  return html`<${Action}
    label="Change the plan"
    name=${`Change the plan of room ${of.name}`}
    question=${`Change the plan of room ${of.name}`}
    consequence="Changes apply at once to all processes. Sessions in progress keep their end."
    confirm="Change"
    method="PATCH"
    path=${path}
    body=${planChange(of.plan)}
    done=${`The plan of room ${of.name} is changed.`}
    onDone=${onDone}
  >
    <${PlanFields} plan=${of.plan} />
  <//>`;
}
