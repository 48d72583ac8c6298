// Routing: the name of the page is the fragment of the address, so every view has a link.

import { shared, useShared } from "./state.js";

/** The pages, as the navigation lists them. `key` goes there after `g`; `short` is for narrow places. */
export const PLACES = [
  { name: "overview", label: "Overview", href: "#/", key: "o", group: "Now" },
  { name: "runs", label: "Runs", href: "#/runs", key: "r", group: "Now" },
  { name: "quotas", label: "Quotas", href: "#/quotas", key: "q", group: "Now" },
  { name: "dead", label: "Dead letters", short: "Dead", href: "#/dead", key: "d", group: "Now" },
  { name: "snapshots", label: "Snapshots", href: "#/snapshots", key: "s", group: "Systems" },
  { name: "rooms", label: "Rooms", href: "#/rooms", key: "w", group: "Systems" },
  { name: "campaigns", label: "Campaigns", href: "#/campaigns", key: "c", group: "Systems" },
  { name: "crawl", label: "Crawl", href: "#/crawl", key: "x", group: "Systems" },
  { name: "schedules", label: "Schedules", href: "#/schedules", key: "t", group: "Set up" },
  { name: "credentials", label: "Credentials", href: "#/credentials", key: "k", group: "Set up" },
  { name: "machinery", label: "Machinery", href: "#/machinery", key: "m", group: "Set up" },
];

const here = shared({ ...read(), visit: 0 });
addEventListener("hashchange", () => here.set({ ...read(), visit: here.get().visit + 1 }));

/**
 * {page, place, rest, query, visit}: which page is shown, which place of the navigation it belongs to, and the rest.
 * `visit` is another for each arrival, also at the same page: it begins anew then.
 */
export const useRoute = () => useShared(here);

export function go(href) {
  location.hash = href;
}

/** Change what stands behind the ? of the address; it is no arrival, and no step in the browser's history. */
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
