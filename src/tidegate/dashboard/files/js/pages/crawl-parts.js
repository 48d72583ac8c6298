// Form fields of a crawl, for the dialogs that start or schedule one.

import { given, toList, toNumber } from "../fields.js";
import { Field } from "../parts/index.js";
import { html } from "../view.js";

/** The form fields of a crawl. */
export const CrawlFields = () => html`
  <${Field}
    label="Name"
    name="name"
    required
    pattern="[A-Za-z0-9_.\\-]+"
    placeholder="daily"
    hint="Name of the crawl. It has at most one active run."
  />
  <${Field}
    label="Address"
    name="url"
    kind="url"
    required
    placeholder="https://shop.example"
    hint="Scheme and host of the marketplace."
  />
  <${Field} label="Keywords" name="keywords" kind="area" required placeholder="lantern" hint="One per line." />
  <${Field} label="Pages of each search" name="pages" kind="number" min="1" defaultValue="100" />
`;

/** Converts the fields to the body of the API. */
export const toCrawl = ({ name, url, keywords, pages }) =>
  given({ name: name.trim(), url: url.trim(), keywords: toList(keywords), pages: toNumber(pages) });
