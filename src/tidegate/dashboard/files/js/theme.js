// Light, dark, or as the system has it. The choice is kept in this browser.

import { shared, useShared } from "./state.js";

const KEPT_AS = "tidegate.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const choice = shared(kept());

/** What is seen: "light" or "dark". */
export const theme = shared(seen());

/** What was chosen: "light", "dark" or "system". */
export const useThemeChoice = () => useShared(choice);

export function chooseTheme(wanted) {
  choice.set(wanted);
  try {
    localStorage.setItem(KEPT_AS, wanted);
  } catch {
    // A browser that keeps nothing forgets it with the tab.
  }
  show();
}

/** Once, when the page begins. */
export function beginTheme() {
  system.addEventListener("change", show);
  show();
}

function show() {
  document.documentElement.dataset.theme = seen();
  theme.set(seen());
}

function seen() {
  if (choice.get() !== "system") return choice.get();
  return system.matches ? "dark" : "light";
}

function kept() {
  try {
    const found = localStorage.getItem(KEPT_AS);
    return found === "light" || found === "dark" ? found : "system";
  } catch {
    return "system";
  }
}
