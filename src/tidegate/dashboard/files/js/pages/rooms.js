// Waiting rooms: waiting and admitted visitors.

import { useTopic } from "../live.js";
import {
  Action,
  Chart,
  count,
  Empty,
  Field,
  number,
  Page,
  Problem,
  Progress,
  rate,
  Section,
  Table,
} from "../parts/index.js";
import { useSeen } from "../seen.js";
import { html } from "../view.js";
import { Room } from "./room.js";
import { figuresOf, OpenOrClose, PlanFields, RoomState, toPlan } from "./room-parts.js";

const LEAD = "Waiting rooms in front of services with limited capacity. Visitors are admitted in order, each once.";
const MOST_LINES = 6;

export function Rooms({ rest }) {
  return rest.length > 0 ? html`<${Room} name=${rest[0]} />` : html`<${List} />`;
}

function List() {
  const live = useTopic("rooms");
  const now = live.value;
  return html`<${Page} title="Rooms" lead=${LEAD} live=${live} actions=${html`<${NewRoom} />`}>
    <${Problem} of=${live.problem} />
    ${now?.rooms.length > 0 && html`<${Charts} rooms=${now.rooms} at=${live.at} />`}
    <${Section} title="Rooms" note=${now && count(now.rooms.length, "room")}>
      <${Table}
        stacks
        columns=${COLUMNS}
        rows=${now?.rooms ?? null}
        rowKey=${(room) => room.name}
        caption="Rooms, by name"
        empty=${html`<${NoRooms} />`}
      />
    <//>
  <//>`;
}

const COLUMNS = [
  {
    head: "Room",
    cell: ({ name, plan: { title } }) => html`<a href=${`#/rooms/${name}`}>${title || name}</a>
      <span class="quiet"> ${title && name}</span>`,
  },
  { head: "State", cell: (room) => html`<${RoomState} of=${room} />` },
  { head: "Waiting", number: true, cell: (room) => number(room.counts?.waiting) },
  { head: "Inside", wide: true, cell: (room) => html`<${Inside} of=${room} />` },
  {
    head: "Let in",
    number: true,
    hideOnPhone: true,
    cell: (room) => (room.plan.admit_per_second === null ? "at once" : `${rate(room.plan.admit_per_second)}/s`),
  },
  { head: "Actions", shrink: true, cell: (room) => html`<${OpenOrClose} of=${room} small />` },
];

function Charts({ rooms, at }) {
  const waiting = ({ counts }) => counts?.waiting ?? 0;
  const shown = [...rooms].sort((one, other) => waiting(other) - waiting(one)).slice(0, MOST_LINES);
  const seen = useSeen(Object.fromEntries(rooms.flatMap(figuresOf)), at);
  const lines = (figure) => shown.map(({ name }) => ({ label: name, points: seen[`room/${name}/${figure}`] ?? [] }));
  return html`<${Section} title="Over time" note="Since this page was opened.">
    <div class="charts">
      <${Chart}
        title="Waiting visitors"
        unit="people"
        series=${lines("waiting")}
        isStep
        empty="Points appear here while this page is open."
      />
      <${Chart}
        title="Admitted visitors"
        unit="people"
        series=${lines("inside")}
        isStep
        empty="Points appear here while this page is open."
      />
    </div>
  <//>`;
}

function Inside({ of }) {
  if (!of.counts) return html`<span class="quiet">currently unknown</span>`;
  const inside = of.counts.active + of.counts.entering - of.counts.guests;
  return html`<${Progress}
    done=${inside}
    most=${of.plan.capacity}
    label=${`Places taken of ${of.name}`}
    text=${`${number(inside)} of ${number(of.plan.capacity)}`}
  />`;
}

function NewRoom() {
  return html`<${Action}
    label="New room"
    icon="plus"
    primary
    question="New room"
    consequence="The room is closed until it is opened. The hash of the seed of its draw is published at once."
    confirm="Create"
    path="/v1/rooms"
    body=${toRoom}
    done=${(room) => `Room ${room.name} is made.`}
  >
    <${Field}
      label="Name"
      name="name"
      required
      pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*"
      placeholder="sale"
      hint="Part of the room's URLs."
    />
    <${PlanFields} />
  <//>`;
}

const toRoom = (fields) => ({ name: fields.name.trim(), plan: toPlan(fields) });

const NoRooms = () => html`<${Empty}
  title="There are no rooms yet"
  command="tidegate room create sale --capacity 500"
>
  Create one here with “New room”, or with a command:
<//>`;
