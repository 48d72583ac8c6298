// Routing: the page is in the fragment of the URL, so every view has a link.

import { shared, useShared } from "./state.js";

/** The pages of the navigation. `key` opens the page after `g`; `short` is the label on narrow screens. */
export const PLACES = [
  { name: "overview", label: "Overview", href: "#/", key: "o", group: "Now" },
  { name: "runs", label: "Runs", href: "#/runs", key: "r", group: "Now" },
  { name: "subjects", label: "Subjects", href: "#/subjects", key: "u", group: "Now" },
  { name: "quotas", label: "Quotas", href: "#/quotas", key: "q", group: "Now" },
  { name: "dead", label: "Dead letters", short: "Dead", href: "#/dead", key: "d", group: "Now" },
  { name: "snapshots", label: "Snapshots", href: "#/snapshots", key: "s", group: "Systems" },
  { name: "rooms", label: "Rooms", href: "#/rooms", key: "w", group: "Systems" },
  { name: "campaigns", label: "Campaigns", href: "#/campaigns", key: "c", group: "Systems" },
  { name: "crawl", label: "Crawl", href: "#/crawl", key: "x", group: "Systems" },
  { name: "schedules", label: "Schedules", href: "#/schedules", key: "t", group: "Set up" },
  { name: "credentials", label: "Credentials", href: "#/credentials", key: "k", group: "Set up" },
  { name: "runtime", label: "Runtime", href: "#/runtime", key: "m", group: "Set up" },
];

const here = shared({ ...read(), visit: 0 });
addEventListener("hashchange", () => here.set({ ...read(), visit: here.get().visit + 1 }));

/**
 * {page, place, rest, query, visit}: the page, its place in the navigation, and the rest of the path.
 * `visit` changes with each navigation, also to the same page, which then starts again.
 */
export const useRoute = () => useShared(here);

export function go(href) {
  location.hash = href;
}

/** Change the query of the URL, without a navigation and without an entry in the browser's history. */
export function refine(query) {
  const path = location.hash.split("?")[0] || "#/";
  const text = query.toString();
  history.replaceState(null, "", text ? `${path}?${text}` : path);
  here.set({ ...read(), visit: here.get().visit });
}

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").filter(Boolean).map(decoded);
  const place = PLACES.find((one) => one.name === (name ?? "overview"))?.name ?? null;
  const page = place === "runs" && rest.length > 0 ? "run" : place;
  return { page, place, rest, query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
