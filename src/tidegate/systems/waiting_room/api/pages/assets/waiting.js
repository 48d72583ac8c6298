// Keeps the waiting page up to date through a stream of events, or by polling while the stream is unavailable.
//
// The server renders the page; without this script the page reloads itself. This script replaces numbers in place;
// any other change makes the server render the page again.

const AGAIN_LEAST_S = 4;
const AGAIN_MOST_S = 30;
const SPOKEN_EVERY_MS = 30_000;
const FIRST_WITHIN_MS = 10_000;
const SILENT_MS = 120_000;
const STALE_MS = 30_000;

const IN_HOURS_FROM_S = 90 * 60;
const FINE_S = 20 * 60;
const LONGEST_HOURS = 12;

const grouped = new Intl.NumberFormat("en");

/** Formats a text of the table that the server sent. */
export function say(texts, language, key, n = null, values = {}) {
  let text = texts[key];
  if (typeof text !== "string") text = text[new Intl.PluralRules(language).select(n)] ?? text.other;
  const filled = { n: n === null ? "" : grouped.format(n), ...values };
  return text.replace(/\{(\w+)\}/g, (_, name) => filled[name]);
}

/** The estimated wait in words: the same as `wait` in durations.py; a test compares the two. */
export function wait(texts, language, estimate, isPaused = false) {
  const text = (key, n, values) => say(texts, language, key, n, values);
  if (isPaused) return text("wait.paused");
  if (!estimate) return text("wait.unknown");
  const { soonest_s, latest_s } = estimate;
  if (latest_s < 60) return text("wait.moment");
  const rounded = (unit, step) => [Math.floor(soonest_s / unit / step) * step, Math.ceil(latest_s / unit / step) * step];
  const interval = (unit, from, to) => {
    if (from === 0) return text(`wait.within.${unit}`, to);
    return from === to ? text(`wait.about.${unit}`, to) : text(`wait.between.${unit}`, to, { from: grouped.format(from) });
  };
  if (latest_s <= IN_HOURS_FROM_S) return interval("minutes", ...rounded(60, latest_s > FINE_S ? 5 : 1));
  const [from, to] = rounded(3600, 1);
  if (to <= LONGEST_HOURS) return interval("hours", from, to);
  return from === 0 ? text("wait.unknown") : text("wait.long", Math.min(from, LONGEST_HOURS));
}

/** The remaining time as h:mm:ss; null for more than a day, which is shown in words. */
export function clock(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  if (seconds >= 86_400) return null;
  const two = (n) => String(n).padStart(2, "0");
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

const block = document.getElementById("given");
if (block) begin(JSON.parse(block.textContent));

function begin(given) {
  const at = (id) => document.getElementById(id);
  const main = at("main");
  const text = (key, n, values) => say(given.texts, given.language, key, n, values);
  let shown = null; // the place that was last shown
  let spokenAt = -Infinity;
  let source = null;
  let tries = 0;
  let pause = null;
  let silence = null;
  let lastEventAt = performance.now();
  let isPolling = false;

  // Counts down on the monotonic clock.
  function countDown(element) {
    clearInterval(element.ticking);
    const end = performance.now() + Number(element.dataset.untilMs);
    const tick = () => {
      const left = clock(end - performance.now());
      if (left === null) return;
      element.textContent = left;
      element.dataset.is = left.length > 5 ? "long" : "";
      if (end > performance.now()) return;
      clearInterval(element.ticking);
      onCountdownEnd();
    };
    element.ticking = setInterval(tick, 1000);
    tick();
  }

  // The start has come, or the session is over. An event should say so; if none arrives, the connection is broken.
  function onCountdownEnd() {
    if (given.is_live) {
      pause = setTimeout(() => { if (main.dataset.state === "drawing") poll(); }, 3000 + 5000 * Math.random());
    } else {
      given.again_s = 2;
      reloadLater();
    }
  }

  function setCookie(name, value, seconds, path) {
    const where = path ? `; Path=${path}` : "";
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `${name}=${value}; Max-Age=${seconds}${where}; SameSite=Lax${secure}`;
  }

  function render(state) {
    main.dataset.state = state;
    for (const part of main.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(state);
  }

  // Shows a place; returns whether further events can follow.
  function show(place) {
    if (place.pass) setCookie(given.cookie, place.pass, given.cookie_s, "/");
    if (!given.live_states.includes(place.state)) {
      leave();
      return false;
    }
    const isNew = main.dataset.state !== place.state;
    if (isNew) render(place.state);
    if (place.state === "drawing") showDrawing(place);
    if (place.state === "waiting") showWaiting(place);
    if (place.state === "entering") document.title = `${text("entering.title")} · ${given.title}`;
    announce(place, isNew);
    shown = place;
    return true;
  }

  function showDrawing(place) {
    const start = at("start");
    start.dataset.untilMs = place.opens_in_ms;
    countDown(start);
    document.title = `${text("drawing.title")} · ${given.title}`;
  }

  function showWaiting({ position, waiting, estimate, is_paused }) {
    if (given.start === null || position > given.start) {
      given.start = position;
      setCookie(given.start_cookie, position, given.cookie_s);
    }
    const number = grouped.format(position);
    at("place").textContent = number;
    at("place").dataset.is = number.length > 6 ? "long" : "";
    at("paused").hidden = !is_paused;
    at("first").hidden = position !== 1 || is_paused;
    at("progress").value = 100 * (1 - position / (given.start + 1));
    at("estimate").textContent = wait(given.texts, given.language, estimate, is_paused);
    const behind = waiting - position;
    at("behind").textContent = behind > 0 ? text("waiting.people", behind) : text("waiting.none");
    document.title = `${text("waiting.tab", position)} · ${given.title}`;
  }

  // Announces changes to screen readers, but not each step in line.
  function announce(place, isNew) {
    const isOld = shown && shown.position === place.position && shown.is_paused === place.is_paused && !isNew;
    const isSoon = performance.now() - spokenAt < SPOKEN_EVERY_MS;
    if (!shown && !isNew) { spokenAt = performance.now(); return; } // screen readers have read it with the page
    if (isOld || (isSoon && !isNew && place.position !== 1)) return;
    spokenAt = performance.now();
    at("said").textContent = {
      drawing: () => text("drawing.title"),
      waiting: () => [
        text("waiting.said", place.position),
        place.is_paused ? text("waiting.paused") : `${text("waiting.estimate")}: ${wait(given.texts, given.language, place.estimate)}`,
      ].join(" "),
      entering: () => text("entering.title"),
    }[place.state]();
  }

  // Admitted, or no longer in line: the server redirects or renders the final state.
  function leave() {
    stop();
    location.replace(given.here);
  }

  function stop() {
    clearTimeout(pause);
    clearTimeout(silence);
    source?.close();
    source = null;
  }

  function retryLater() {
    stop();
    const most = Math.min(AGAIN_MOST_S, AGAIN_LEAST_S * 2 ** tries);
    tries += 1;
    // Random delay, so that not all waiting browsers reconnect at once when a server is available again.
    pause = setTimeout(poll, most * (500 + 500 * Math.random()));
  }

  // Restarts the stream without news in time: a proxy may buffer events, and a connection can break unnoticed.
  function expectNews(withinMs) {
    clearTimeout(silence);
    silence = setTimeout(retryLater, withinMs);
  }

  function listen() {
    stop();
    const stream = new EventSource(given.events);
    source = stream;
    expectNews(FIRST_WITHIN_MS);
    stream.addEventListener("place", (event) => {
      expectNews(SILENT_MS);
      lastEventAt = performance.now();
      tries = 0;
      at("lost").hidden = true;
      show(JSON.parse(event.data));
    });
    stream.onerror = () => { if (source === stream) retryLater(); };
  }

  // Polls the place after the stream broke; also the fallback where event streams do not get through.
  async function poll() {
    if (isPolling) return;
    isPolling = true;
    stop();
    try {
      const answer = await fetch(given.place, { cache: "no-store", signal: AbortSignal.timeout(10_000) });
      if (answer.status >= 400 && answer.status < 500) return leave(); // the pass is not valid any more
      if (!answer.ok) throw new Error(answer.statusText);
      at("lost").hidden = true;
      if (show(await answer.json())) listen();
    } catch {
      at("lost").hidden = false;
      retryLater();
    } finally {
      isPolling = false;
    }
  }

  // Reloads pages without events after a while, as soon as the server answers.
  function reloadLater() {
    const most = given.again_s * 2 ** Math.min(tries, 2);
    tries += 1;
    pause = setTimeout(async () => {
      try {
        const answer = await fetch(given.here, { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(10_000) });
        if (answer.status < 500) return location.replace(given.here);
      } catch {
        // Handled like a server error: tried again.
      }
      reloadLater();
    }, most * (500 + 500 * Math.random()));
  }

  // Solves the puzzle while the visitor reads, mostly before the button is pressed.
  function solvePuzzle(form) {
    const button = form.querySelector("button");
    const label = button.textContent;
    let isPressed = false;
    const worker = new Worker(given.puzzle, { type: "module" });
    worker.onmessage = ({ data }) => {
      worker.terminate();
      form.elements.proof.value = data;
      if (!isPressed) return;
      button.disabled = false;
      form.requestSubmit(button);
    };
    worker.postMessage({ challenge: given.challenge, bits: given.puzzle_bits });
    form.addEventListener("submit", (event) => {
      if (form.elements.proof.value) return;
      event.preventDefault();
      isPressed = true;
      button.disabled = true;
      button.textContent = form.dataset.solving;
    });
    addEventListener("pageshow", (event) => { if (event.persisted) { button.disabled = false; button.textContent = label; } });
  }

  if (at("puzzle")) solvePuzzle(at("puzzle"));
  for (const timer of document.querySelectorAll("[data-until-ms]")) countDown(timer);
  if (given.is_live) {
    listen();
    addEventListener("online", () => poll());
    addEventListener("pageshow", (event) => { if (event.persisted) poll(); });
    addEventListener("pagehide", stop);
    // A submitted form shows its own result; an event must not redirect the page before that.
    document.addEventListener("submit", stop);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        // A last sign of life in case the tab is closed: the place is kept for the full time from now on.
        if (!isPolling) fetch(given.here, { method: "HEAD", keepalive: true, cache: "no-store" }).catch(() => {});
      } else if (source === null || performance.now() - lastEventAt > STALE_MS) poll();
    });
  } else if (given.again_s) reloadLater();
}
