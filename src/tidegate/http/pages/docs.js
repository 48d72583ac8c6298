"use strict";
// The page of documentation: Swagger UI, with a search over all operations and the session of the browser.

const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", paint);
paint();

// Swagger UI filters by tag alone; this searches addresses, methods and summaries.
const search = () => ({
  fn: {
    opsFilter: (tags, phrase) => {
      const wanted = phrase.toLowerCase();
      const fits = (each) =>
        [each.get("method"), each.get("path"), each.getIn(["operation", "summary"], "")].join(" ").toLowerCase().includes(wanted);
      return tags
        .map((tag, name) => (name.toLowerCase().includes(wanted) ? tag : tag.set("operations", tag.get("operations").filter(fits))))
        .filter((tag) => tag.get("operations").size > 0);
    },
  },
});

// A signed-in browser sends its session cookie; requests that change something also need the session's CSRF token.
const readSession = () => fetch("v1/session").then((answer) => (answer.ok ? answer.json() : {})).catch(() => ({}));

const authenticated = async (request) => {
  if ((request.method || "GET").toUpperCase() !== "GET" && request.headers.Authorization === undefined) {
    const { csrf } = await readSession();
    if (csrf) request.headers["X-Tidegate-CSRF"] = csrf;
  }
  return request;
};

window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#ui",
  deepLinking: true,
  filter: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  showExtensions: true,
  validatorUrl: null,
  plugins: [search],
  requestInterceptor: authenticated,
});
