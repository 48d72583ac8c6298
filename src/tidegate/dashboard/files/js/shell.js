// The frame of every page: navigation, status at a glance, and the signed-in user.

import { signOut, useSession } from "./api.js";
import { Keyboard } from "./keyboard.js";
import { useTopic } from "./live.js";
import { Dialog } from "./parts/dialog.js";
import { Badge, compact, count, Icon, Liveness, tell } from "./parts/index.js";
import { Toasts } from "./parts/toast.js";
import { PLACES } from "./router.js";
import { chooseTheme, useThemeChoice } from "./theme.js";
import { html, useEffect, useState } from "./view.js";

const GROUPS = ["Now", "Systems", "Set up"];
const ON_PHONE = ["overview", "runs", "quotas", "dead"];
const THEMES = [["light", "Light", "sun"], ["dark", "Dark", "moon"], ["system", "System", "system"]];

export function Shell({ route, children }) {
  const overview = useTopic("overview");
  const marks = marksOf(overview.value);
  const [isMore, more] = useState(false);
  const [isHelp, help] = useState(false);
  useEffect(() => more(false), [route.visit]);
  const foot = html`<${Foot} overview=${overview} help=${() => (more(false), help(true))} />`;
  return html`<a class="skip" href="#content" onClick=${toContent}>Skip to content</a>
    <div class="frame">
      <aside class="side" aria-label="Tidegate">
        <${Brand} />
        <${Places} place=${route.place} marks=${marks} />
        ${foot}
      </aside>
      <header class="top"><${Brand} /><${Liveness} of=${overview} /></header>
      <main id="content" tabindex="-1">${children}</main>
      <nav class="bar" aria-label="Main">
        ${PLACES.filter((one) => ON_PHONE.includes(one.name)).map((one) => html`<${Place}
          key=${one.name}
          of=${one}
          isHere=${one.name === route.place}
          mark=${marks[one.name]}
          isShort
        />`)}
        <button type="button" class="place" aria-haspopup="dialog" onClick=${() => more(true)}>
          <${Icon} name="more" size=${18} /><span>More</span>
        </button>
      </nav>
    </div>
    ${isMore && html`<${Dialog} label="All pages" look="sheet" onClose=${() => more(false)}>
      <div class="sheet-head">
        <${Brand} />
        <button type="button" class="button-plain" aria-label="Close" onClick=${() => more(false)}>
          <${Icon} name="cross" size=${20} />
        </button>
      </div>
      <${Places} place=${route.place} marks=${marks} onGo=${() => more(false)} />
      ${foot}
    <//>`}
    <${Keyboard} isOpen=${isHelp} show=${help} />
    <${Toasts} />`;
}

export function Brand() {
  return html`<a class="brand" href="#/">
    <svg width="24" height="24" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path class="brand-gate" d="M4 20V4h16v16M9 4v9M15 4v9" />
      <path class="brand-tide" d="M2 17c2.5-2.5 4.2-2.5 6.7 0s4.2 2.5 6.6 0 4.2-2.5 6.7 0" />
    </svg>
    <span>Tidegate</span>
  </a>`;
}

function Places({ place, marks, onGo }) {
  return html`<nav class="places" aria-label="Main" onClick=${onGo}>
    ${GROUPS.map((group) => html`<div key=${group} class="places-group">
      <h2>${group}</h2>
      <ul>
        ${PLACES.filter((one) => one.group === group).map((one) => html`<li key=${one.name}>
          <${Place} of=${one} isHere=${one.name === place} mark=${marks[one.name]} />
        </li>`)}
      </ul>
    </div>`)}
  </nav>`;
}

function Place({ of, isHere, mark, isShort = false }) {
  return html`<a class="place" href=${of.href} aria-current=${isHere ? "page" : undefined}>
    <${Icon} name=${of.name} size=${18} /><span>${isShort ? (of.short ?? of.label) : of.label}</span>
    ${mark && html`<span class="mark mark-${mark.kind}">
      <span aria-hidden="true">${compact(mark.value)}</span><span class="unseen">, ${mark.text}</span>
    </span>`}
  </a>`;
}

function Foot({ overview, help }) {
  return html`<div class="foot">
    <div class="foot-line">
      <${Liveness} of=${overview} />${overview.value && html`<span class="quiet">v${overview.value.version}</span>`}
    </div>
    <${Themes} />
    <${SignedInUser} />
    <button type="button" class="button-plain foot-keys" onClick=${help}>
      <${Icon} name="keyboard" />Keys <kbd>?</kbd>
    </button>
  </div>`;
}

function Themes() {
  const chosen = useThemeChoice();
  return html`<div class="choice choice-icons" role="group" aria-label="Theme">
    ${THEMES.map(([value, label, icon]) => html`<button
      key=${value}
      type="button"
      aria-pressed=${chosen === value ? "true" : "false"}
      aria-label=${label}
      title=${label}
      onClick=${() => chooseTheme(value)}
    >
      <${Icon} name=${icon} />
    </button>`)}
  </div>`;
}

function SignedInUser() {
  const { role, needsKey } = useSession();
  const leave = () => signOut().catch((problem) => tell(problem.detail, "critical"));
  return html`<div class="foot-line">
    <span title=${role === "operate" ? "You can read and make changes." : "You can read only."}>
      <${Badge} state=${role} kind=${role === "operate" ? "good" : "info"} label=${`Role: ${role}`} />
    </span>
    ${needsKey && html`<button type="button" class="button-plain" onClick=${leave}>
      <${Icon} name="exit" />Log out
    </button>`}
  </div>`;
}

/** Counts beside the names of pages: only what needs attention. */
function marksOf(overview) {
  if (!overview) return {};
  const dead = (overview.dead ?? []).reduce((sum, one) => sum + (one.count ?? 0), 0);
  const runs = overview.runs ? overview.runs.planning + overview.runs.running + overview.runs.finalizing : 0;
  const grave = overview.attention.filter((one) => one.severity !== "info").length;
  return {
    overview: grave > 0 && { value: grave, kind: "warning", text: `${count(grave, "item")} for your attention` },
    runs: runs > 0 && { value: runs, kind: "plain", text: `${runs} active` },
    dead: dead > 0 && { value: dead, kind: "critical", text: count(dead, "dead letter") },
  };
}

function toContent(event) {
  event.preventDefault();
  document.getElementById("content").focus();
}
