// Keyboard shortcuts: `g` and a letter opens a page, `/` focuses the filter, `?` lists all. They can be turned off.

import { Dialog } from "./parts/dialog.js";
import { go, PLACES } from "./router.js";
import { shared, useShared } from "./state.js";
import { html, useEffect, useState } from "./view.js";

const KEPT_AS = "tidegate.keys";
const SECOND_KEY_WITHIN_MS = 1500;
const isOn = shared(kept());

/** Handles shortcuts, and shows the list of them while `isOpen`; calls `show(isOpen)` to change that. */
export function Keyboard({ isOpen, show }) {
  const isHeard = useShared(isOn);
  useEffect(() => {
    const leaving = new AbortController();
    const hear = listener(() => show(true));
    if (isHeard) document.addEventListener("keydown", hear, { signal: leaving.signal });
    return () => leaving.abort();
  }, [isHeard]);
  return isOpen && html`<${Help} isHeard=${isHeard} close=${() => show(false)} />`;
}

function listener(help) {
  let after = null;
  let since = 0;
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || isDialogOpen()) return;
    const first = Date.now() - since < SECOND_KEY_WITHIN_MS ? after : null;
    after = event.key;
    since = Date.now();
    if (first === "g") {
      const place = PLACES.find((one) => one.key === event.key);
      after = null;
      if (place) go(place.href);
    } else if (event.key === "/") {
      const filter = document.querySelector("[data-filter]");
      if (filter) event.preventDefault();
      filter?.focus();
    } else if (event.key === "?") help();
  };
}

function Help({ isHeard, close }) {
  const [chosen, choose] = useState(isHeard);
  const turn = (event) => {
    choose(event.target.checked);
    keep(event.target.checked);
  };
  return html`<${Dialog} labelledBy="keys-title" onClose=${close}>
    <h2 id="keys-title">Keys</h2>
    <dl class="keys">
      ${PLACES.map((place) => html`<div key=${place.name}>
        <dt><kbd>g</kbd> <kbd>${place.key}</kbd></dt><dd>${place.label}</dd>
      </div>`)}
      <div><dt><kbd>/</kbd></dt><dd>Focus the filter</dd></div>
      <div><dt><kbd>?</kbd></dt><dd>These keys</dd></div>
      <div><dt><kbd>Esc</kbd></dt><dd>Close a dialog</dd></div>
    </dl>
    <div class="field field-check">
      <input
        id="keys-on"
        type="checkbox"
        checked=${chosen}
        onChange=${turn}
      /><label for="keys-on">Use these keys in this browser</label>
    </div>
    <div class="dialog-buttons">
      <button type="button" class="button button-primary" onClick=${close}>Close</button>
    </div>
  <//>`;
}

const isDialogOpen = () => document.querySelector("dialog[open]") !== null;

function isTyping(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
}

function keep(wanted) {
  isOn.set(wanted);
  try {
    localStorage.setItem(KEPT_AS, wanted ? "on" : "off");
  } catch {
    // Without browser storage, the choice lasts as long as the tab.
  }
}

function kept() {
  try {
    return localStorage.getItem(KEPT_AS) !== "off";
  } catch {
    return true;
  }
}
