// Light, dark, or as the system has it. The choice is kept in this browser.

import { shared, useShared } from "./state.js";

const KEPT_AS = "tidegate.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const choice = shared(kept());

/** The effective theme: "light" or "dark". */
export const theme = shared(seen());

/** The user's choice: "light", "dark" or "system". */
export const useThemeChoice = () => useShared(choice);

export function chooseTheme(wanted) {
  choice.set(wanted);
  try {
    localStorage.setItem(KEPT_AS, wanted);
  } catch {
    // Without browser storage, the choice lasts as long as the tab.
  }
  show();
}

/** Apply the theme; called once when the page starts. */
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
