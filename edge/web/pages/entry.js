// The way in: a token, the credentials of a client, an invitation, or on a new gateway the enrolment of its operator by the
// code that the gateway shows.
import { html, useEffect, useLayoutEffect, useRef, useSignal } from "../ui.js";
import { connect, connection } from "../model/connection.js";
import { register, signIn } from "../model/gateway.js";
import { t } from "../model/text.js";
import { setToken, token } from "../model/token.js";
import { useAction } from "../parts/action.js";
import { English } from "../parts/english.js";

const REASONS = ["invalid_request", "invalid_grant", "invalid_client", "forbidden"];

/** Forms instead of a page while the gateway is locked. `invitation` is a code from the address. `issued` is called with
 *  the credentials of a new client. */
export function Entry({ invitation, issued }) {
  const { error } = connection.value;
  const enrolment = useSignal({});
  useEffect(() => {
    fetch("./api/enrolment").then((answer) => (answer.ok ? answer.json() : {}), () => ({})).then((found) => { enrolment.value = found; });
  }, [error]);
  useEffect(() => { document.title = `${t("entry.title")} · sepa-edge`; }, []);
  const { state, code } = enrolment.value;
  return html`${invitation
    ? html`<${Enrolment} kind="invited" code=${invitation} issued=${issued} />`
    : (state === "open" || state === "closed") && html`<${Enrolment} kind=${state} code=${code} issued=${issued} />`}
    <${TokenForm} error=${error} />`;
}

function TokenForm({ error }) {
  const field = useRef();
  const reason = REASONS.includes(error.error) ? error.error : "invalid_grant";
  // With the rendering: after the next frame, the field may have the beginning of another token.
  useLayoutEffect(() => {
    field.current.value = "";
    field.current.focus();
  }, [error]);
  const enter = (event) => {
    event.preventDefault();
    const text = field.current.value.trim().replace(/^bearer\s+/i, "");
    if (!text) return;
    setToken(text);
    connect();
  };
  return html`<section id="entry" class="panel">
    <h1 id="entry-title">${t(`entry.${reason}`)}</h1>
    <p>${t(`entry.${reason}.text`)}</p>
    <form id="entry-form" onSubmit=${enter}>
      <label for="token">${t("entry.token")}</label>
      <input id="token" ref=${field} type="password" autocomplete="off" spellcheck="false" maxlength="8192" required />
      <button type="submit">${t("entry.use")}</button>
    </form>
    <p id="entry-error" class="problem" role="alert">${token() && html`<${English}>${error.error_description}<//>`}</p>
    <${SignIn} />
    <p>${t("entry.help", { command: "edge clients token NAME" })}</p>
  </section>`;
}

/** A token for a client that is registered already. The browser can store its id and secret. */
function SignIn() {
  const [act, problem] = useAction();
  const enter = (event) => {
    event.preventDefault();
    const { id, secret, stay } = event.target.elements;
    act(async () => {
      await signIn({ client_id: id.value.trim(), client_secret: secret.value.trim() }, stay.checked);
      connect();
    });
  };
  return html`<details id="sign-in"><summary>${t("entry.client")}</summary>
    <form class="rows" onSubmit=${enter}>
      <label for="sign-in-id">${t("credentials.id")}</label>
      <input id="sign-in-id" name="id" autocomplete="username" spellcheck="false" maxlength="200" required />
      <label for="sign-in-secret">${t("credentials.secret")}</label>
      <input id="sign-in-secret" name="secret" type="password" autocomplete="current-password" maxlength="200" required />
      <${Stay} />
      <button type="submit">${t("entry.client.do")}</button>
    </form>${problem}</details>`;
}

function Stay() {
  return html`<label class="choice"><input type="checkbox" name="stay" /> ${t("entry.stay")}</label>`;
}

/** `kind`: open or closed on a gateway without an operator; invited with a code from the address. */
function Enrolment({ kind, code, issued }) {
  const [act, problem] = useAction();
  const invited = kind === "invited";
  const enrol = (event) => {
    event.preventDefault();
    const given = event.target.elements.code.value.trim().toUpperCase(), stay = event.target.elements.stay.checked;
    act(async () => {
      const client = await register(given);
      // Before the next request: the code is valid once, so an error must not lose the credentials.
      issued({ ...client, invited });
      await signIn(client, stay);
      connect();
    });
  };
  return html`<section id="enrolment" class="panel">
    <h1>${t(invited ? "enrolment.invited.title" : "enrolment.title")}</h1>
    <p>${t(`enrolment.${kind}`)}</p>
    <form id="enrolment-form" onSubmit=${enrol}>
      <label for="code">${t("enrolment.code")}</label>
      <input id="code" name="code" defaultValue=${code ?? ""} autocomplete="off" spellcheck="false" maxlength="200" required />
      <${Stay} />
      <button type="submit">${t(invited ? "enrolment.invited.do" : "enrolment.do")}</button>
    </form>
    ${problem}
  </section>`;
}

/** The credentials of a new client, until the user has saved them. */
export function Credentials({ client, kept }) {
  return html`<section id="credentials" class="panel">
    <h2>${t(client.invited ? "credentials.invited" : "credentials.title")}</h2>
    <p>${t("credentials.text", { path: "POST /oauth/token" })}</p>
    <dl>
      <dt>${t("credentials.id")}</dt><dd id="client-id">${client.client_id}</dd>
      <dt>${t("credentials.secret")}</dt><dd id="client-secret">${client.client_secret}</dd>
    </dl>
    <button id="credentials-kept" type="button" onClick=${kept}>${t("credentials.kept")}</button>
  </section>`;
}
