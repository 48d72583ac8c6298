// Keeps the waiting page up to date: one stream of events while it can be had, else a question now and then.
//
// The server has rendered everything; without this file the page reloads itself instead. What happens here:
// the numbers of somebody who waits are replaced where they stand, and whatever changes more than numbers is
// rendered by the server again.

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

/** A text of the table that the server sent. */
export function say(texts, language, key, n = null, values = {}) {
  let text = texts[key];
  if (typeof text !== "string") text = text[new Intl.PluralRules(language).select(n)] ?? text.other;
  const filled = { n: n === null ? "" : grouped.format(n), ...values };
  return text.replace(/\{(\w+)\}/g, (_, name) => filled[name]);
}

/** How long it will take, in words: the same as `wait` in words.py, which a test compares with this. */
export function wait(texts, language, estimate, isPaused = false) {
  const told = (key, n, values) => say(texts, language, key, n, values);
  if (isPaused) return told("wait.paused");
  if (!estimate) return told("wait.unknown");
  const { soonest_s, latest_s } = estimate;
  if (latest_s < 60) return told("wait.moment");
  const rounded = (unit, step) => [Math.floor(soonest_s / unit / step) * step, Math.ceil(latest_s / unit / step) * step];
  const interval = (unit, from, to) => {
    if (from === 0) return told(`wait.within.${unit}`, to);
    return from === to ? told(`wait.about.${unit}`, to) : told(`wait.between.${unit}`, to, { from: grouped.format(from) });
  };
  if (latest_s <= IN_HOURS_FROM_S) return interval("minutes", ...rounded(60, latest_s > FINE_S ? 5 : 1));
  const [from, to] = rounded(3600, 1);
  if (to <= LONGEST_HOURS) return interval("hours", from, to);
  return from === 0 ? told("wait.unknown") : told("wait.long", Math.min(from, LONGEST_HOURS));
}

/** What is left, as a clock shows it; null for more than a day, which words tell better. */
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
  const told = (key, n, values) => say(given.texts, given.language, key, n, values);
  let shown = null; // the place that was last told
  let spokenAt = -Infinity;
  let source = null;
  let tries = 0;
  let pause = null;
  let silence = null;
  let heardAt = performance.now();
  let isAsking = false;

  // Counting down, by the clock that only goes forward.
  function countDown(element) {
    clearInterval(element.ticking);
    const end = performance.now() + Number(element.dataset.untilMs);
    const tick = () => {
      const text = clock(end - performance.now());
      if (text === null) return;
      element.textContent = text;
      element.dataset.is = text.length > 5 ? "long" : "";
      if (end > performance.now()) return;
      clearInterval(element.ticking);
      comeToAnEnd();
    };
    element.ticking = setInterval(tick, 1000);
    tick();
  }

  // The start has come, or the time is over. Who watches is told so; if not, the connection has died unheard.
  function comeToAnEnd() {
    if (given.is_live) {
      pause = setTimeout(() => { if (main.dataset.state === "drawing") ask(); }, 3000 + 5000 * Math.random());
    } else {
      given.again_s = 2;
      lookAgain();
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

  // Whether there is more to come.
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
    if (place.state === "entering") document.title = `${told("entering.title")} · ${given.title}`;
    speak(place, isNew);
    shown = place;
    return true;
  }

  function showDrawing(place) {
    const start = at("start");
    start.dataset.untilMs = place.opens_in_ms;
    countDown(start);
    document.title = `${told("drawing.title")} · ${given.title}`;
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
    at("behind").textContent = behind > 0 ? told("waiting.people", behind) : told("waiting.nobody");
    document.title = `${told("waiting.tab", position)} · ${given.title}`;
  }

  // For those who hear the page: what is new, but not every step of it.
  function speak(place, isNew) {
    const isOld = shown && shown.position === place.position && shown.is_paused === place.is_paused && !isNew;
    const isSoon = performance.now() - spokenAt < SPOKEN_EVERY_MS;
    if (!shown && !isNew) { spokenAt = performance.now(); return; } // it was read with the page
    if (isOld || (isSoon && !isNew && place.position !== 1)) return;
    spokenAt = performance.now();
    at("said").textContent = {
      drawing: () => told("drawing.title"),
      waiting: () => [
        told("waiting.said", place.position),
        place.is_paused ? told("waiting.paused") : `${told("waiting.estimate")}: ${wait(given.texts, given.language, place.estimate)}`,
      ].join(" "),
      entering: () => told("entering.title"),
    }[place.state]();
  }

  // Inside, or nowhere: the server knows where to go.
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

  function later() {
    stop();
    const most = Math.min(AGAIN_MOST_S, AGAIN_LEAST_S * 2 ** tries);
    tries += 1;
    // Not all at once, when a server comes back before which a hundred thousand wait.
    pause = setTimeout(ask, most * (500 + 500 * Math.random()));
  }

  // Something that stands between may hold the events back, and a connection can die unheard.
  function expectNews(withinMs) {
    clearTimeout(silence);
    silence = setTimeout(later, withinMs);
  }

  function listen() {
    stop();
    const mine = new EventSource(given.events);
    source = mine;
    expectNews(FIRST_WITHIN_MS);
    mine.addEventListener("place", (event) => {
      expectNews(SILENT_MS);
      heardAt = performance.now();
      tries = 0;
      at("lost").hidden = true;
      show(JSON.parse(event.data));
    });
    mine.onerror = () => { if (source === mine) later(); };
  }

  // Asked when the stream broke: tells whether the server is there, and is the way for those whom no stream reaches.
  async function ask() {
    if (isAsking) return;
    isAsking = true;
    stop();
    try {
      const answer = await fetch(given.place, { cache: "no-store", signal: AbortSignal.timeout(10_000) });
      if (answer.status >= 400 && answer.status < 500) return leave(); // the pass is worth nothing any more
      if (!answer.ok) throw new Error(answer.statusText);
      at("lost").hidden = true;
      if (show(await answer.json())) listen();
    } catch {
      at("lost").hidden = false;
      later();
    } finally {
      isAsking = false;
    }
  }

  // Pages on which nothing is live look again after a while, and are rendered anew when the server answers.
  function lookAgain() {
    const most = given.again_s * 2 ** Math.min(tries, 2);
    tries += 1;
    pause = setTimeout(async () => {
      try {
        const answer = await fetch(given.here, { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(10_000) });
        if (answer.status < 500) return location.replace(given.here);
      } catch {
        // As good as an answer that says so: it is tried again.
      }
      lookAgain();
    }, most * (500 + 500 * Math.random()));
  }

  // Solved while the visitor reads: mostly it is done before the button is pressed.
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
    addEventListener("online", () => ask());
    addEventListener("pageshow", (event) => { if (event.persisted) ask(); });
    addEventListener("pagehide", stop);
    // Who leaves is shown what came of it: news of the same must not lead elsewhere first.
    document.addEventListener("submit", stop);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        // A last sign of life and the newest pass, should this be the end of the tab: the place is kept from now on.
        if (!isAsking) fetch(given.here, { method: "HEAD", keepalive: true, cache: "no-store" }).catch(() => {});
      } else if (source === null || performance.now() - heardAt > STALE_MS) ask();
    });
  } else if (given.again_s) lookAgain();
}
