// Results of crawls: products, and the stored answers they are assembled from.

import { useFetched } from "../live.js";
import {
  Action,
  Badge,
  Choice,
  Empty,
  Field,
  Icon,
  number,
  Pager,
  Problem,
  Section,
  Table,
  title,
  usePages,
  Verbatim,
  When,
} from "../parts/index.js";
import { refine } from "../router.js";
import { html, useState } from "../view.js";

const LIMIT = 25;
const GONE = [["", "All"], ["false", "Listed"], ["true", "Gone"]];
const STATES = [["", "All"], ["pending", "To apply"], ["processed", "Applied"], ["failed", "Failed"]];
const PARTS = ["mini_shop", "detail", "option"];

export function Products({ query }) {
  const { asked, choose } = useFilter(query, ["host", "shop", "gone"]);
  const pages = usePages(`/v1/crawl/products?${asked}`);
  const { value, problem, reload } = useFetched(pages.path);
  const [opened, open] = useState(null);
  const place = (row) => `${row.host}/${row.product_id}`;
  const columns = [
    { head: "Product", cell: (row) => html`<button
      type="button"
      class="button-plain unfold"
      aria-expanded=${place(row) === opened ? "true" : "false"}
      onClick=${() => open(place(row) === opened ? null : place(row))}
    >
      <${Icon} name=${place(row) === opened ? "minus" : "plus"} size=${14} /><span>${nameOf(row)}</span>
    </button>` },
    { head: "Price", number: true, cell: priceOf },
    { head: "Shop", hideOnPhone: true, cell: (row) => html`<code>${row.shop_id}</code>` },
    { head: "Host", hideOnPhone: true, cell: (row) => html`<code>${row.host}</code>` },
    { head: "State", cell: (row) => html`<${Listed} of=${row} />` },
    { head: "Changed", cell: (row) => html`<${When} at=${row.changed_at} />` },
  ];
  return html`<${Section}
    title="Products"
    note="Last known state"
    aside=${html`<${Choice}
      label="Which products"
      options=${GONE}
      value=${query.get("gone") ?? ""}
      onChoose=${(gone) => choose({ gone })}
    />`}
  >
    <${Filter}
      fields=${[["host", "Host", "shop.example"], ["shop", "Shop", "500000"]]}
      query=${query}
      choose=${choose}
    />
    <${Problem} of=${problem} retry=${reload} />
    <${Table}
      stacks
      columns=${columns}
      rows=${value?.products ?? (problem ? [] : null)}
      rowKey=${place}
      caption="Products that crawls have found"
      empty=${html`<${NoProducts} />`}
      detail=${(row) => place(row) === opened && html`<${Verbatim}
        of=${row}
        label=${`All of product ${row.product_id}`}
      />`}
    />
    <${Pager} pages=${pages} next=${value?.next} label="products" />
  <//>`;
}

export function Raws({ query, now }) {
  const { asked, choose } = useFilter(query, ["state", "run", "host", "product"]);
  const pages = usePages(`/v1/crawl/raws?${asked}`);
  const { value, problem, reload } = useFetched(pages.path, [now?.raws?.failed]);
  const columns = [
    { head: "Answer", cell: (row) => html`<strong>${row.id}</strong> <span class="quiet">${title(row.stage)}</span>` },
    { head: "Of", cell: (row) => html`<code>${row.host}/${row.product_id}</code>` },
    { head: "State", cell: (row) => html`<${Badge} state=${row.state} />` },
    { head: "Why", wide: true, cell: (row) => html`<${Why} of=${row} />` },
    { head: "Run", hideOnPhone: true, cell: (row) => html`<a href=${`#/runs/${row.run_id}`}>run ${row.run_id}</a>` },
    { head: "Came", cell: (row) => html`<${When} at=${row.received_at} />` },
    { head: "Actions", shrink: true, cell: (row) => row.state === "failed" && html`<${Action}
      label="Replay"
      name=${`Replay answer ${row.id}`}
      icon="retry"
      small
      question=${`Replay answer ${row.id}?`}
      consequence="It is processed again. The site is not called."
      path=${`/v1/crawl/raws/${row.id}/replay`}
      done=${`Answer ${row.id} is processed again.`}
      onDone=${reload}
    />` },
  ];
  return html`<${Section}
    title="Stored answers"
    note="Pending, applied and failed answers, with reasons"
    aside=${html`<${Choice}
      label="Which answers"
      options=${STATES}
      value=${query.get("state") ?? ""}
      onChoose=${(state) => choose({ state })}
    />`}
  >
    <${Filter}
      fields=${[["run", "Run", "12"], ["host", "Host", "shop.example"], ["product", "Product", "2000000000"]]}
      query=${query}
      choose=${choose}
    />
    <${Problem} of=${problem} retry=${reload} />
    <${Table}
      stacks
      columns=${columns}
      rows=${value?.raws ?? (problem ? [] : null)}
      caption="Stored answers, oldest first"
      empty="No matching answers."
    />
    <${Pager} pages=${pages} next=${value?.next} label="stored answers" />
  <//>`;
}

/** The filter is part of the address, so it can be shared. */
function useFilter(query, names) {
  const given = names.filter((name) => query.get(name)).map((name) => [name, query.get(name)]);
  const asked = new URLSearchParams([["limit", LIMIT], ...given]);
  const choose = (change) => {
    const wanted = new URLSearchParams(query);
    for (const [name, value] of Object.entries(change)) value ? wanted.set(name, value) : wanted.delete(name);
    refine(wanted);
  };
  return { asked, choose };
}

function Filter({ fields, query, choose }) {
  const submit = (event) => {
    event.preventDefault();
    choose(Object.fromEntries([...new FormData(event.target)].map(([name, value]) => [name, value.trim()])));
  };
  return html`<form class="toolbar" role="search" onSubmit=${submit}>
    ${fields.map(([name, label, example], place) => html`<${Field}
      key=${name}
      label=${label}
      name=${name}
      placeholder=${example}
      defaultValue=${query.get(name) ?? ""}
      data-filter=${place === 0 ? "" : undefined}
    />`)}
    <button type="submit" class="button">Filter</button>
  </form>`;
}

function Why({ of }) {
  if (of.state === "pending" && of.waits_for) return html`waits for <code>${of.waits_for}</code>`;
  if (of.state === "pending") return html`tried next <${When} at=${of.not_before} />`;
  const why = of.reason ?? (of.applied_as ? `change ${number(of.applied_as)} of its product` : "–");
  return html`<span class=${of.state === "failed" ? "reason" : "quiet"}>${why}</span>`;
}

function Listed({ of }) {
  const missing = Object.entries(of.missing);
  if (of.gone_at) return html`<${Badge}
    state="deleted"
    label="gone"
  /> <span class="quiet"><${When} at=${of.gone_at} /></span>`;
  if (missing.length) return html`<span title=${missing.map(([part, why]) => `${part}: ${why}`).join("\n")}><${Badge}
    state="degraded"
    label=${`without ${missing.map(([part]) => title(part).toLowerCase()).join(", ")}`}
  /></span>`;
  return PARTS.every((part) => of[part] !== null) ? html`<${Badge}
    state="stored"
    label="complete"
  />` : html`<${Badge} state="pending" label="in part" />`;
}

const nameOf = (row) => row.detail?.name ?? row.mini_shop?.name ?? row.product_id;

/** The price of the first part that has one, starting with the details. */
function priceOf({ detail, mini_shop }) {
  const told = [detail, mini_shop].find((part) => typeof part?.price === "number");
  return told ? `${number(told.price)} ${told.currency ?? ""}`.trim() : "–";
}

const NoProducts = () => html`<${Empty}
  title="No matching products"
  command="tidegate crawl run daily --url https://shop.example -k lantern"
>
  Crawls find products. Start one here, or with a command:
<//>`;
