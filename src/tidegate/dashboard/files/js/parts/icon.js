// Icons. They accompany text, so screen readers ignore them.

import { html } from "../view.js";

const PERSON = "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7M2.5 20c0-4 3-6 6.5-6s6.5 2 6.5 6";
const RAYS = "M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M19 5l-1.4 1.4M6.4 17.6L5 19";
const PATHS = {
  overview: "M3 3h7v9H3zM14 3h7v5h-7zM14 12h7v9h-7zM3 16h7v5H3z",
  runs: "M5 4l14 8-14 8z",
  subjects: "M5 3h14v18H5zM9 8h6M9 12h6M9 16h4",
  quotas: "M4 18a9 9 0 1 1 16 0M12 14l4-5",
  runtime: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  snapshots: "M4 8h4l2-3h4l2 3h4v11H4zM12 16.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6",
  rooms: `${PERSON}M16 4.5a3.5 3.5 0 0 1 0 6.5M18 14.5c2.2.8 3.5 2.7 3.5 5.5`,
  campaigns: "M4 9h16v11H4zM3 6h18v3H3zM12 6v14M12 6c-4 0-5-4-2.5-4S12 6 12 6s0-4 2.5-4S16 6 12 6",
  crawl: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M3 12h18M12 3c5 5 5 13 0 18M12 3c-5 5-5 13 0 18",
  dead: "M4 6h16v12H4zM4 7l8 6 8-6M9 21l6-6M15 21l-6-6",
  schedules: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M12 7v5l3.5 2",
  credentials: "M8 16a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9M12.5 11.5H21M18 11.5V15M21 11.5V14",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  sun: `M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8${RAYS}`,
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5",
  system: "M3 5h18v11H3zM8 20h8M12 16v4",
  exit: "M14 4H5v16h9M10 12h11M17 8l4 4-4 4",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M7 14h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6 6l12 12M18 6L6 18",
  alert: "M12 4l9.5 16h-19zM12 10v4M12 17h.01",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M12 11v5M12 8h.01",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M12 7v5l3.5 2",
  pause: "M9 6v12M15 6v12",
  dots: "M6 12h.01M12 12h.01M18 12h.01",
  play: "M8 6l9 6-9 6z",
  minus: "M6 12h12",
  arrow: "M5 12h14M13 6l6 6-6 6",
  back: "M19 12H5M11 6l-6 6 6 6",
  retry: "M20 11a8 8 0 1 0-.5 4M20 5v6h-6",
  right: "M9 6l6 6-6 6",
  down: "M6 9l6 6 6-6",
  plus: "M12 5v14M5 12h14",
};

/** `name` is one of the icons above. */
export function Icon({ name, size = 16 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d=${PATHS[name]} />
  </svg>`;
}
