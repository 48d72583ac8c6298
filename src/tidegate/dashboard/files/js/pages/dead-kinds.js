// The kinds of dead letters: their routes, actions and texts.

const encoded = encodeURIComponent;

/**
 * Each kind: `label`; `meaning`; `list(part)`, the path of its first page; `rows(answer)`, its dead letters in one shape
 * {id, what, about, tries, reason, message, at, contents}; `place(part, id)`, the path of one dead letter; `replay` and
 * `discard`, texts about the consequences, null if the action does not exist; `replayAll(part)`.
 */
export const KINDS = {
  events: {
    label: "Events",
    meaning: "Outbox events with failed handlers. They cannot be discarded, because a run would stay unfinished.",
    list: () => "/v1/dead-letters?kind=event&limit=25",
    rows: ({ letters }) => letters.map(letter),
    place: (_, id) => `/v1/dead-letters/${encoded(id)}`,
    replay: "The event is delivered again, with a new set of attempts. If the cause persists, it becomes a dead letter again.",
    discard: null,
    replayAll: () => ({ path: "/v1/dead-letters/replay", body: { kind: "event" } }),
  },
  messages: {
    label: "Messages",
    meaning: "Stream messages that were delivered too often without being completed.",
    list: () => "/v1/dead-letters?kind=message&limit=25",
    rows: ({ letters }) => letters.map(letter),
    place: (_, id) => `/v1/dead-letters/${encoded(id)}`,
    replay: "The message is added to its stream again.",
    discard: "The message is discarded permanently. This cannot be undone.",
    replayAll: () => ({ path: "/v1/dead-letters/replay", body: { kind: "message" } }),
  },
  snapshots: {
    label: "Snapshots",
    meaning: "Refreshes that failed permanently: the upstream refused them, or the answer was invalid. Kept for a week.",
    list: () => "/v1/snapshots/dead?limit=25",
    rows: ({ letters }) => letters.map(refresh),
    place: (_, id) => `/v1/snapshots/dead/${encoded(id)}`,
    replay: "The refresh is requested again. If one of this subject is in progress, the dead letter stays.",
    discard: "The refresh is discarded; a later read of the subject may request another one.",
    replayAll: (_, after) => ({ path: "/v1/snapshots/dead/replay", body: after ? { after } : {} }),
  },
  campaigns: {
    label: "Campaigns",
    meaning: "Entries that failed permanently. Each keeps its share of the stock until it is discarded.",
    list: (campaign) => `/v1/campaigns/${encoded(campaign)}/dead?limit=25`,
    rows: ({ letters }) => letters.map(entry),
    place: (campaign, id) => `/v1/campaigns/${encoded(campaign)}/dead/${encoded(id)}`,
    replay: "The entry is processed again, with its previous number.",
    discard: "The entry is discarded permanently: its share of the stock is free, and its user can enter again.",
    replayAll: (campaign) => ({ path: `/v1/campaigns/${encoded(campaign)}/dead/replay` }),
  },
  crawl: {
    label: "Crawl",
    meaning: "Stored answers that could not be applied to a product. They stay until they are replayed.",
    list: () => "/v1/crawl/raws?state=failed&limit=25",
    rows: ({ raws }) => raws.map(answer),
    place: (_, id) => `/v1/crawl/raws/${encoded(id)}`,
    replay: "The answer is processed again. The site is not called.",
    discard: null,
    replayAll: () => ({ path: "/v1/crawl/dead/replay" }),
  },
};

function letter({ id, name, key, attempts, reason, at, contents }) {
  return { id, what: name, about: key, tries: attempts, reason, at, contents };
}

function refresh({ id, subject, retries, reason, message, failed_at, event, worker, trace }) {
  const contents = { event, worker, trace };
  return { id, what: "Refresh", about: subject, tries: retries + 1, reason, message, at: failed_at, contents };
}

function entry({ id, entry: known, deliveries, reason, at, payload }) {
  const about = known ? `${known.user}, number ${known.number}` : "an entry that cannot be read";
  return { id, what: "Entry", about, tries: deliveries, reason, at, contents: known ?? payload };
}

function answer(raw) {
  const at = raw.processed_at ?? raw.received_at;
  const about = `${raw.host}/${raw.product_id}`;
  return { id: String(raw.id), what: raw.stage, about, tries: raw.attempts, reason: raw.reason, at, contents: raw };
}

/** The result of replaying all, in a sentence. */
export function replayedAll({ replayed, stayed = 0, next_after = null }) {
  const stay = stayed ? ` ${stayed} stayed: they are in progress, or this version cannot read them.` : "";
  return `${replayed} replayed.${stay}${next_after ? " There are more: use replay all again to continue." : ""}`;
}

/** The result of an action on one dead letter, in a sentence. */
export function settled({ outcome }) {
  if (outcome === "already_processing") return "A refresh is in progress: the dead letter stays.";
  return outcome === "replayed" ? "The dead letter is replayed." : "The dead letter is discarded.";
}
