// What a crawl is made of, asked for in a dialog: the same where it begins now, and where it begins by the clock.

import { given, toList, toNumber } from "../fields.js";
import { Field } from "../parts/index.js";
import { html } from "../view.js";

/** The fields of a dialog. */
export const CrawlFields = () => html`
  <${Field}
    label="Name"
    name="name"
    required
    pattern="[A-Za-z0-9_.\\-]+"
    placeholder="daily"
    hint="What you call this crawl; it has one run at a time."
  />
  <${Field}
    label="Address"
    name="url"
    kind="url"
    required
    placeholder="https://shop.example"
    hint="Scheme and host of the marketplace."
  />
  <${Field} label="Keywords" name="keywords" kind="area" required placeholder="lantern" hint="One on each line." />
  <${Field} label="Pages of each search" name="pages" kind="number" min="1" defaultValue="100" />
`;

/** What was typed into them, as the API wants it. */
export const toCrawl = ({ name, url, keywords, pages }) =>
  given({ name: name.trim(), url: url.trim(), keywords: toList(keywords), pages: toNumber(pages) });
