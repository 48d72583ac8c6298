// The kinds of dead letters: where each is listed, what can be done with it, and what that means.

const encoded = encodeURIComponent;

/**
 * Each kind: `label`; `meaning`; `list(part)`, the address of its first page; `rows(answer)`, its letters, all of one
 * shape {id, what, about, tries, reason, message, at, contents}; `place(part, id)`, the address of one letter;
 * `replay` and `discard`, what they bring, null where there is no such thing; `replayAll(part)`.
 */
export const KINDS = {
  events: {
    label: "Events",
    meaning: "Events of the outbox that no handler took. They cannot be discarded: a run would stay unfinished.",
    list: () => "/v1/dead-letters?kind=event&limit=25",
    rows: ({ letters }) => letters.map(letter),
    place: (_, id) => `/v1/dead-letters/${encoded(id)}`,
    replay: "The event is delivered again, with all its tries before it. If its reason is still there, it comes back.",
    discard: null,
    replayAll: () => ({ path: "/v1/dead-letters/replay", body: { kind: "event" } }),
  },
  messages: {
    label: "Messages",
    meaning: "Messages of the streams that were with too many workers, none of which came to an end with them.",
    list: () => "/v1/dead-letters?kind=message&limit=25",
    rows: ({ letters }) => letters.map(letter),
    place: (_, id) => `/v1/dead-letters/${encoded(id)}`,
    replay: "The message goes back into its stream, as if it were new.",
    discard: "The message is given up for good. That cannot be taken back.",
    replayAll: () => ({ path: "/v1/dead-letters/replay", body: { kind: "message" } }),
  },
  snapshots: {
    label: "Snapshots",
    meaning: "Refreshes that failed for good: the upstream refused them, or could not be understood. They wait a week.",
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
    replay: "The entry is decided after all, under its old number.",
    discard: "The entry is given up for good: its place is free, and its user may enter again.",
    replayAll: (campaign) => ({ path: `/v1/campaigns/${encoded(campaign)}/dead/replay` }),
  },
  crawl: {
    label: "Crawl",
    meaning: "Answers that were kept, and could not be made part of a product. They stay until they are replayed.",
    list: () => "/v1/crawl/raws?state=failed&limit=25",
    rows: ({ raws }) => raws.map(answer),
    place: (_, id) => `/v1/crawl/raws/${encoded(id)}`,
    replay: "The answer is tried again, as if it were new. The site is not called.",
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

/** What a replay of all brought, in a sentence. */
export function replayedAll({ replayed, stayed = 0, next_after = null }) {
  const stay = stayed ? ` ${stayed} stayed: they are in progress, or this version cannot read them.` : "";
  return `${replayed} replayed.${stay}${next_after ? " There are more: replay all again goes on behind these." : ""}`;
}

/** What became of one letter, in a sentence. */
export function settled({ outcome }) {
  if (outcome === "already_processing") return "A refresh is in progress: the dead letter stays.";
  return outcome === "replayed" ? "The letter is replayed." : "The letter is discarded.";
}
