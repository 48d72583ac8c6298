// Components shared by the list of rooms and the page of one room.

import { now } from "../clock.js";
import { changed, given, toList, toMoment, toNumber } from "../fields.js";
import { Action, Badge, Field, moment, When } from "../parts/index.js";
import { html } from "../view.js";

/** The recorded values of a room: [[name, value]…]. */
export function figuresOf({ name, counts }) {
  const inside = counts && counts.active + counts.entering;
  return [[`room/${name}/waiting`, counts?.waiting], [`room/${name}/inside`, inside]];
}

/** Whether visitors can join and are not admitted yet. */
export const isSoon = (room) => room.state === "open" && moment(room.opens_at) > now();

export function RoomState({ of }) {
  if (isSoon(of)) return html`<${Badge}
    state="soon"
    label="draw"
  /> <span class="quiet">opens <${When} at=${of.opens_at} /></span>`;
  return html`<${Badge} state=${of.state} />`;
}

export function OpenOrClose({ of, small = false, onDone }) {
  const path = `/v1/rooms/${encodeURIComponent(of.name)}`;
  if (of.state === "open") {
    return html`<${Action}
      label="Close"
      name=${`Close room ${of.name}`}
      icon="pause"
      small=${small}
      danger
      question=${`Close room ${of.name}?`}
      consequence="No visitor can join or is admitted. Waiting visitors keep their places, admitted ones stay."
      path=${`${path}/close`}
      done=${`Room ${of.name} is closed.`}
      onDone=${onDone}
    />`;
  }
  const hasStarted = moment(of.opens_at) <= now();
  const consequence = hasStarted
    ? "Visitors can join and are admitted. The start of the draw has passed and does not change."
    : "Visitors can join, and are admitted after the start time. Visitors that join before it take part in a draw.";
  return html`<${Action}
    label="Open"
    name=${`Open room ${of.name}`}
    icon="play"
    small=${small}
    question=${`Open room ${of.name}?`}
    consequence=${consequence}
    path=${`${path}/open`}
    body=${({ opens_at }) => given({ opens_at: toMoment(opens_at) })}
    done=${`Room ${of.name} is open.`}
    onDone=${onDone}
  >
    ${!hasStarted && html`<${Field}
      label="Start"
      name="opens_at"
      kind="datetime-local"
      hint="In your time zone; empty: now."
    />`}
  <//>`;
}

/** The form fields of a plan, with the current values. */
export function PlanFields({ plan = {} }) {
  return html`
    <${Field}
      label="Capacity"
      name="capacity"
      kind="number"
      min="0"
      required
      defaultValue=${plan.capacity ?? 100}
      hint="How many visitors may be inside at once. A lower value removes no visitor."
    />
    <${Field}
      label="Admissions per second"
      name="admit_per_second"
      kind="number"
      min="0.01"
      step="any"
      defaultValue=${plan.admit_per_second ?? ""}
      hint="Empty: any number."
    />
    <${Field}
      label="Session, seconds"
      name="session_s"
      kind="number"
      min="1"
      max="86400"
      step="any"
      defaultValue=${plan.session_s ?? 600}
      hint="Longest time without activity."
    />
    <${Field}
      label="Longest session, seconds"
      name="longest_session_s"
      kind="number"
      min="1"
      max="86400"
      step="any"
      defaultValue=${plan.longest_session_s ?? 1800}
    />
    <${Field} label="Title" name="title" defaultValue=${plan.title ?? ""} hint="Title on the waiting page." />
    <${Field}
      label="Entrance"
      name="entrance"
      defaultValue=${plan.entrance ?? ""}
      placeholder="/shop"
      hint="Where admitted visitors are sent."
    />
    <${Field}
      label="Anonymous visitors"
      name="anonymous"
      kind="check"
      defaultChecked=${plan.anonymous ?? false}
      hint="Allowed to join on the waiting page; otherwise only your server can add visitors."
    />`;
}

/** Converts the fields of `PlanFields` to the body of the API. */
export const toPlan = (fields) => ({
  capacity: toNumber(fields.capacity),
  admit_per_second: toNumber(fields.admit_per_second),
  session_s: toNumber(fields.session_s),
  longest_session_s: toNumber(fields.longest_session_s),
  title: fields.title,
  entrance: fields.entrance || null,
  anonymous: fields.anonymous === "on",
});

/** Only the fields that differ from the previous plan. */
export const planChange = (before) => (fields) => changed(toPlan(fields), before);

/** Converts a text with one name per line to a list. */
export const toUsers = (fields) => ({ users: toList(fields.users) });
