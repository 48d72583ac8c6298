// Sign-in with a key. The browser keeps a session, never the key.

import { signIn } from "../api.js";
import { Field, Notice, sentence } from "../parts/index.js";
import { Brand } from "../shell.js";
import { html, useEffect, useState } from "../view.js";

export function Login() {
  const [problem, complain] = useState(null);
  const [isBusy, work] = useState(false);
  useEffect(() => {
    document.title = "Sign in · Tidegate";
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    work(true);
    complain(null);
    try {
      await signIn(new FormData(event.target).get("key"));
    } catch (found) {
      complain(found);
      work(false);
    }
  };
  return html`<main class="alone"><div class="alone-box">
    <${Brand} />
    <h1>Sign in</h1>
    <p class="quiet">
      This server requires a key. Its operator sets it as <code>TIDEGATE_HTTP__API_KEY</code>;
      those in <code>TIDEGATE_HTTP__READ_KEYS</code> are read-only.
    </p>
    <form class="stack" onSubmit=${submit}>
      <${Field} label="API key" name="key" kind="password" required autofocus spellcheck=${false} />
      ${problem && html`<${Notice} kind="critical" title="Sign-in failed">
        ${sentence(problem.detail)}${problem.retryAfter && html` Try again in ${problem.retryAfter} s.`}
      <//>`}
      <button type="submit" class="button button-primary button-wide" disabled=${isBusy}>
        ${isBusy ? "Signing in…" : "Sign in"}
      </button>
    </form>
  </div></main>`;
}
