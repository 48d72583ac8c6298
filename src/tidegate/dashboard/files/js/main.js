// Entry point: the session, the route, and the component that shows it.

import { loadSession, useSession } from "./api.js";
import { Login } from "./pages/login.js";
import { Notice, Page, Problem } from "./parts/index.js";
import { useRoute } from "./router.js";
import { Brand, Shell } from "./shell.js";
import { beginTheme } from "./theme.js";
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useState } from "./view.js";

const ASK_AGAIN_MS = 5000;

function App() {
  const { state, problem } = useSession();
  useEffect(() => {
    loadSession();
  }, []);
  if (state === "in") return html`<${Inside} />`;
  if (state === "out") return html`<${Login} />`;
  if (state === "away") return html`<${Away} problem=${problem} />`;
  return html`<div class="alone" aria-busy="true"><span class="unseen">Loading</span></div>`;
}

function Inside() {
  const route = useRoute();
  const found = usePage(route.page);
  useFocusOnArrival(route.visit, found.page === route.page);
  return html`<${Shell} route=${route}>
    ${route.page === null && html`<${Unknown} />`}
    ${found.problem && html`<${Outdated} />`}
    ${found.page === route.page && found.Shown && html`<${Guarded}
      key=${route.visit}
      Shown=${found.Shown}
      rest=${route.rest}
      query=${route.query}
    />`}
  <//>`;
}

/** Loads the module of a page when it is opened for the first time. */
function usePage(page) {
  const [found, show] = useState({ page: null, Shown: null, problem: null });
  useEffect(() => {
    let isCurrent = page !== null;
    const name = page?.replace(/^./, (first) => first.toUpperCase());
    if (page !== null) {
      import(`./pages/${page}.js`).then(
        (module) => isCurrent && show({ page, Shown: module[name], problem: null }),
        (problem) => isCurrent && show({ page, Shown: null, problem }),
      );
    }
    return () => {
      isCurrent = false;
    };
  }, [page]);
  return found;
}

/** After navigation by a link or a key, the focus is on the heading. */
function useFocusOnArrival(visit, isThere) {
  useLayoutEffect(() => {
    if (!isThere || visit === 0) return;
    scrollTo(0, 0);
    document.querySelector("h1")?.focus({ preventScroll: true });
  }, [visit, isThere]);
}

/** Error boundary: an error in one page does not affect the others. */
function Guarded({ Shown, rest, query }) {
  const [defect, forget] = useErrorBoundary((error) => console.error(error));
  if (!defect) return html`<${Shown} rest=${rest} query=${query} />`;
  const again = html`<button type="button" class="button" onClick=${forget}>Try again</button>`;
  return html`<${Page} title="This page failed">
    <${Notice} kind="critical" title="Unexpected error" actions=${again}>${defect.message}<//>
  <//>`;
}

function Unknown() {
  return html`<${Page} title="No such page"><p>There is no page with this address. <a href="#/">Go to the overview</a>.</p><//>`;
}

function Outdated() {
  const reload = html`<button type="button" class="button" onClick=${() => location.reload()}>Load again</button>`;
  return html`<${Page} title="This page could not be loaded">
    <${Notice} kind="warning" title="The server may have a new version" actions=${reload}>
      Load the dashboard again to get the page that belongs to it.
    <//>
  <//>`;
}

function Away({ problem }) {
  useEffect(() => {
    const asking = setInterval(loadSession, ASK_AGAIN_MS);
    return () => clearInterval(asking);
  }, []);
  return html`<main class="alone">
    <div class="alone-box"><${Brand} /><h1>Tidegate cannot be reached</h1><${Problem} of=${problem} retry=${loadSession} /></div>
  </main>`;
}

beginTheme();
render(html`<${App} />`, document.body);
