// Credentials: lists and manages them. Secrets can be entered, and are never shown.

import { given, toNumber } from "../fields.js";
import { useFetched, useTopic } from "../live.js";
import {
  Action,
  Badge,
  Empty,
  Field,
  number,
  Page,
  Problem,
  Section,
  Table,
  Tile,
  Tiles,
  When,
} from "../parts/index.js";
import { html } from "../view.js";

const LEAD = "Tokens and apps that requests use, and whether they are valid. Secrets are never shown.";
const FROM_ENVIRONMENT = "It comes from the environment of the process: change it there.";

export function Credentials() {
  const allowances = useTopic("quotas").value?.pools.flatMap((pool) => pool.allowances) ?? [];
  const refused = allowances.filter((one) => one.is_retired).map((one) => one.name);
  const { value, problem, reload } = useFetched("/v1/credentials", [refused.join()]);
  const rows = value?.credentials;
  const actions = html`<${AddToken} onDone=${reload} /><${AddApp} onDone=${reload} />`;
  return html`<${Page} title="Credentials" lead=${LEAD} actions=${actions}>
    <${Problem} of=${problem} retry=${reload} />
    ${rows?.length > 0 && html`<${Figures} of=${rows} />`}
    <${Section} title="Credentials" note="Oldest first" aside=${html`<a href="#/quotas">Remaining quota</a>`}>
      <${Table}
        stacks
        columns=${columnsOf(reload)}
        rows=${rows ?? (problem ? [] : null)}
        rowKey=${(row) => row.name}
        caption="Credentials, their users and their state"
        empty=${problem ? "They cannot be listed now." : html`<${NoCredentials} />`}
      />
    <//>
  <//>`;
}

function Figures({ of }) {
  const invalid = of.filter((one) => one.state !== "valid").length;
  return html`<${Tiles} label="Credentials at a glance">
    <${Tile} label="Valid" value=${number(of.length - invalid)} note="serve runs" />
    <${Tile}
      label="Invalid"
      value=${number(invalid)}
      kind=${invalid ? "critical" : undefined}
      note="refused by GitHub, not used"
    />
    <${Tile}
      label="Accounts"
      value=${number(new Set(of.map((one) => one.allowance)).size)}
      note="each with its own quota"
    />
  <//>`;
}

const columnsOf = (reload) => [
  { head: "Credential", cell: (row) => html`<strong>${row.name}</strong> <span class="quiet">${row.kind}</span>` },
  {
    head: "State",
    cell: (row) => html`<${Badge} state=${row.state} /> <span class="reason">${row.invalid_reason}</span>`,
  },
  { head: "Account", cell: (row) => row.account },
  { head: "Serves", hideOnPhone: true, cell: (row) => (row.user_id ? `only ${row.user_id}` : "all users") },
  { head: "Contact", hideOnPhone: true, cell: (row) => row.owner },
  { head: "Checked", hideOnPhone: true, cell: (row) => html`<${When} at=${row.checked_at} none="never" />` },
  { head: "Actions", shrink: true, cell: (row) => html`<${Acts} of=${row} reload=${reload} />` },
];

function Acts({ of, reload }) {
  const path = `/v1/credentials/${encodeURIComponent(of.name)}`;
  const whyNot = of.kind === "environment" ? FROM_ENVIRONMENT : null;
  return html`<div class="row-actions">
    <${Action}
      label="Test"
      name=${`Test credential ${of.name}`}
      small
      question=${`Test credential ${of.name}?`}
      consequence="Asks GitHub whether it is valid and how much quota is left."
      path=${`${path}/test`}
      done=${tested}
      onDone=${reload}
    />
    <${Action}
      label="Remove"
      name=${`Remove credential ${of.name}`}
      small
      danger
      whyNot=${whyNot}
      question=${`Remove credential ${of.name}?`}
      consequence="It is no longer used; requests in progress finish. It is not revoked at GitHub."
      method="DELETE"
      path=${path}
      done=${`Credential ${of.name} is removed.`}
      onDone=${reload}
    />
  </div>`;
}

function tested({ name, is_valid, reason, left }) {
  if (is_valid === null) return `${name} could not be tested: ${reason ?? "no answer"}.`;
  if (!is_valid) return `${name} is not valid: ${reason ?? "GitHub rejected it"}.`;
  const buckets = Object.entries(left ?? {}).map(([bucket, seen]) => `${bucket} ${number(seen.remaining)}`);
  return `${name} is good.${buckets.length ? ` Left: ${buckets.join(", ")}.` : ""}`;
}

function AddToken({ onDone }) {
  return html`<${Action}
    label="Add a token"
    icon="plus"
    primary
    question="Add a token"
    consequence="Asks GitHub for its account. It is used from now on; an existing credential of this name gets the new secret."
    confirm="Add it"
    path="/v1/credentials"
    body=${toToken}
    done=${(added) => `Credential ${added.name} of ${added.account} is added.`}
    onDone=${onDone}
  >
    <${Field}
      label="Token"
      name="token"
      kind="password"
      required
      autocomplete="off"
      hint="It is sent once, and not shown again."
    />
    <${Common} />
  <//>`;
}

function AddApp({ onDone }) {
  return html`<${Action}
    label="Add an app"
    icon="plus"
    question="Add a GitHub App"
    consequence="Tokens are issued to its installation when needed. The key is stored encrypted and never shown."
    confirm="Add it"
    path="/v1/credentials"
    body=${toApp}
    done=${(added) => `Credential ${added.name} is added.`}
    onDone=${onDone}
  >
    <${Field} label="App id" name="app_id" kind="number" min="1" required />
    <${Field} label="Installation id" name="installation_id" kind="number" min="1" required />
    <${Field} label="Private key" name="private_key" kind="area" required spellcheck="false" hint="RSA, in PEM." />
    <${Common} needsOwner />
  <//>`;
}

const Common = ({ needsOwner = false }) => html`
  <${Field} label="Name" name="name" hint="Display name; empty: the name of the account." />
  <${Field}
    label="Owner"
    name="owner"
    required=${needsOwner}
    hint=${needsOwner ? "Person responsible for it." : "Person responsible for it; empty: the login of the account."}
  />
  <${Field} label="Only for user" name="user" hint="Serve only the runs of this user; empty: all users." />`;

const toToken = ({ token, name, owner, user }) => given({ token: token.trim(), name, owner, user });

const toApp = ({ app_id, installation_id, private_key, name, owner, user }) =>
  given({
    app: { app_id: toNumber(app_id), installation_id: toNumber(installation_id), private_key },
    name,
    owner,
    user,
  });

const NoCredentials = () => html`<${Empty}
  title="No credential is stored yet"
  command="tidegate credentials add"
>
  Without a credential, no GitHub data can be collected. Add a token here, or with a command:
<//>`;
