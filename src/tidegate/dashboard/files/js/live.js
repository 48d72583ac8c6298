// Live data: topics by server-sent events, with one stream for the whole tab; single runs; and plain requests.

import { call, Problem } from "./api.js";
import { openStream } from "./stream.js";
import { shared, useShared } from "./state.js";
import { useCallback, useEffect, useRef, useState } from "./view.js";

const TYPED_FOR_MS = 300;
const NOTHING_YET = Object.freeze({ value: null, at: null, problem: null });
const ADDRESSES = {
  overview: "/v1/overview",
  runtime: "/v1/runtime",
  quotas: "/v1/quotas",
  runs: "/v1/runs",
  snapshots: "/v1/snapshots/overview",
  rooms: "/v1/rooms",
  campaigns: "/v1/campaigns",
  crawl: "/v1/crawl/overview",
  dead: "/v1/overview/dead",
};
const connection = shared({ isLive: false, since: null });
const topics = new Map();
let stream = null;
let streamed = "";
let isSettling = false;

/**
 * A topic, updated after each change: {value, at, problem, isLive, since}. `value` is the answer of the topic's route,
 * `at` the time at which it arrived (ms). While the stream is interrupted, the value stays and `isLive` is false;
 * `since` is the time of the last change of `isLive` (ms; null at the beginning).
 */
export function useTopic(name) {
  const topic = topicOf(name);
  const state = useShared(topic.state);
  const { isLive, since } = useShared(connection);
  useEffect(() => use(topic), [topic]);
  return { ...state, isLive, since };
}

/**
 * The answer of a route: {value, problem, isLoading, reload}. Requested again when `deps` change or by `reload()`; the
 * old value stays until the new one arrives. Without a path, nothing is requested.
 */
export function useFetched(path, deps = []) {
  const [answer, show] = useState({ path, value: null, problem: null, isLoading: path !== null });
  const [turn, next] = useState(0);
  useEffect(() => {
    if (path === null) {
      show({ path, value: null, problem: null, isLoading: false });
      return undefined;
    }
    const leaving = new AbortController();
    show((last) => ({ ...last, isLoading: true }));
    call("GET", path, undefined, leaving.signal).then(
      (value) => show({ path, value, problem: null, isLoading: false }),
      (problem) => leaving.signal.aborted || show((last) => failed(last, path, problem)),
    );
    return () => leaving.abort();
  }, [path, turn, ...deps]);
  const reload = useCallback(() => next((last) => last + 1), []);
  return { ...answer, reload };
}

/** One run, live until it ends: {value, at, problem, isLive, since, reload}; `reload` opens a new stream. */
export function useRun(id) {
  const [state, show] = useState({ ...NOTHING_YET, isLive: false, since: null });
  const [turn, next] = useState(0);
  useEffect(() => followRun(id, (change) => show((last) => ({ ...last, ...change }))), [id, turn]);
  const reload = useCallback(() => next((last) => last + 1), []);
  return { ...state, reload };
}

/** A value that changes often, updated at most every `ms`; the last value is always delivered. */
export function useSlowly(value, ms) {
  const [told, tell] = useState(value);
  const last = useRef(0);
  useEffect(() => {
    const waiting = setTimeout(() => {
      last.current = Date.now();
      tell(value);
    }, Math.max(0, last.current + ms - Date.now()));
    return () => clearTimeout(waiting);
  }, [value, ms]);
  return told;
}

function failed(last, path, problem) {
  return { path, value: last.path === path ? last.value : null, problem, isLoading: false };
}

function followRun(id, show) {
  const leaving = new AbortController();
  const path = `/v1/runs/${encodeURIComponent(id)}`;
  let following = null;
  const see = (value) => show({ value, at: Date.now(), problem: null });
  const begin = async () => {
    try {
      see(await call("GET", path, undefined, leaving.signal));
    } catch (problem) {
      if (!leaving.signal.aborted) show({ problem, isLive: false });
      return;
    }
    if (leaving.signal.aborted) return;
    following = openStream(`${path}/events`, {
      events: { progress: see, ended: (value) => (see(value), following.close()) },
      onState: (isLive) => show({ isLive, since: Date.now() }),
    });
  };
  begin();
  return () => {
    leaving.abort();
    following?.close();
  };
}

/** The typed text, after a pause in typing. */
export function useSettled(text) {
  const [settled, settleText] = useState(text);
  useEffect(() => {
    const waiting = setTimeout(() => settleText(text), TYPED_FOR_MS);
    return () => clearTimeout(waiting);
  }, [text]);
  return settled;
}

function topicOf(name) {
  if (!topics.has(name)) topics.set(name, { name, users: 0, state: shared(NOTHING_YET) });
  return topics.get(name);
}

function use(topic) {
  topic.users += 1;
  settle();
  return () => {
    topic.users -= 1;
    settle();
  };
}

/** During navigation several topics change at once: the stream is reopened once, afterwards. */
function settle() {
  if (isSettling) return;
  isSettling = true;
  setTimeout(() => {
    isSettling = false;
    const wanted = [...topics.values()].filter((topic) => topic.users > 0);
    const query = wanted.map((topic) => `topic=${encodeURIComponent(topic.name)}`).sort().join("&");
    if (query === streamed) return;
    streamed = query;
    reopen(wanted, query);
  });
}

function reopen(wanted, query) {
  stream?.close();
  stream = null;
  if (!query) return;
  const events = Object.fromEntries(wanted.map((topic) => [topic.name, (value) => hear(topic, value)]));
  events.problem = ({ topic, ...told }) => complain(topicOf(topic), told);
  stream = openStream(`/v1/live?${query}`, {
    events,
    onState: (isLive) => connection.set({ isLive, since: Date.now() }),
    onFailure: () => wanted.forEach(ask),
  });
}

/** If the stream fails, its topics are requested one by one; the answers also have the reason. */
async function ask(topic) {
  const address = ADDRESSES[topic.name];
  if (!address) return;
  try {
    hear(topic, await call("GET", address));
  } catch (problem) {
    topic.state.set({ ...topic.state.get(), problem });
  }
}

function hear(topic, value) {
  topic.state.set({ value, at: Date.now(), problem: null });
}

function complain(topic, { type, ...told }) {
  const problem = new Problem({ ...told, slug: type.split("#").pop() });
  topic.state.set({ ...topic.state.get(), problem });
}
