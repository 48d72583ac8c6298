// A stream of server-sent events that reconnects, and is closed while the page is hidden.

const FIRST_PAUSE_MS = 1000;
const MOST_PAUSE_MS = 30_000;
const HIDDEN_FOR_MS = 5000;

/**
 * Open a stream until `close()`. `events` maps event names to handlers of their decoded data; `onState` is called with
 * true when the stream is connected and with false when it is interrupted, `onFailure` after each failed attempt. The
 * stream is closed while the tab is hidden.
 */
export function openStream(url, { events, onState, onFailure = () => {} }) {
  return new Stream(url, events, onState, onFailure);
}

class Stream {
  #source = null;
  #isLive = null;
  #failures = 0;
  #retry = null;
  #hiding = null;
  #leaving = new AbortController();

  constructor(url, events, onState, onFailure) {
    Object.assign(this, { url, events, onState, onFailure });
    document.addEventListener("visibilitychange", () => this.#seen(), { signal: this.#leaving.signal });
    if (!document.hidden) this.#open();
  }

  close() {
    this.#leaving.abort();
    clearTimeout(this.#hiding);
    this.#stop();
  }

  #open() {
    const source = (this.#source = new EventSource(this.url));
    source.onopen = () => {
      this.#failures = 0;
      this.#tell(true);
    };
    source.onerror = () => this.#failed();
    for (const [name, hear] of Object.entries(this.events)) {
      source.addEventListener(name, (event) => hear(JSON.parse(event.data)));
    }
  }

  #failed() {
    this.#stop();
    this.#tell(false);
    this.onFailure();
    this.#failures += 1;
    const pause = Math.min(MOST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#failures - 1));
    // A random delay, so that not all pages reconnect to a restarted server at the same time.
    this.#retry = setTimeout(() => this.#open(), pause * (0.75 + Math.random() / 2));
  }

  #tell(isLive) {
    if (this.#isLive !== isLive) this.onState(isLive);
    this.#isLive = isLive;
  }

  #seen() {
    clearTimeout(this.#hiding);
    if (document.hidden) this.#hiding = setTimeout(() => this.#stop(), HIDDEN_FOR_MS);
    else if (this.#source === null) {
      clearTimeout(this.#retry);
      this.#open();
    }
  }

  #stop() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }
}
