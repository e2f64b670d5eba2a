// The way in: a token, or on a new gateway the enrolment of its operator by the code that the gateway shows.
import { html, useEffect, useRef, useSignal } from "../ui.js";
import { connect, connection, lock } from "../model/connection.js";
import { register, removeToken, setToken, token, tokenOf } from "../model/gateway.js";
import { t } from "../model/text.js";

const REASONS = ["invalid_request", "invalid_grant", "invalid_client", "forbidden"];

/** Remove the token, and hide what it allowed. */
export function leave() {
  removeToken();
  lock({ error: "invalid_request" });
}

/** Forms instead of a page while the gateway is locked. `issued` is called with the credentials of a new operator. */
export function Entry({ issued }) {
  const { error } = connection.value;
  const enrolment = useSignal({});
  useEffect(() => {
    fetch("/api/enrolment").then((answer) => (answer.ok ? answer.json() : {}), () => ({})).then((found) => { enrolment.value = found; });
  }, [error]);
  useEffect(() => { document.title = `${t("entry.title")} · sepa-edge`; }, []);
  const { state, code } = enrolment.value;
  return html`${(state === "open" || state === "closed") && html`<${Enrolment} state=${state} code=${code} issued=${issued} />`}
    <${TokenForm} error=${error} />`;
}

function TokenForm({ error }) {
  const field = useRef();
  const reason = REASONS.includes(error.error) ? error.error : "invalid_grant";
  useEffect(() => {
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
    <p id="entry-error" class="problem" role="alert">${token() ? error.error_description : ""}</p>
    <p>${t("entry.help", { command: "edge clients token NAME" })}</p>
  </section>`;
}

function Enrolment({ state, code, issued }) {
  const problem = useSignal("");
  const enrol = async (event) => {
    event.preventDefault();
    problem.value = "";
    try {
      const client = await register(event.target.elements.code.value.trim().toUpperCase());
      issued(client);  // before the next request: the code is valid once, so an error must not lose the credentials
      setToken(await tokenOf(client));
    } catch (error) {
      problem.value = error.message;
      return;
    }
    connect();
  };
  return html`<section id="enrolment" class="panel">
    <h1>${t("enrolment.title")}</h1>
    <p>${t(`enrolment.${state}`)}</p>
    <form id="enrolment-form" onSubmit=${enrol}>
      <label for="code">${t("enrolment.code")}</label>
      <input id="code" name="code" defaultValue=${code ?? ""} autocomplete="off" spellcheck="false" maxlength="200" required />
      <button type="submit">${t("enrolment.do")}</button>
    </form>
    <p class="problem" role="alert">${problem}</p>
  </section>`;
}

/** The credentials of a new operator, until the user has saved them. */
export function Credentials({ client, kept }) {
  return html`<section id="credentials" class="panel">
    <h2>${t("credentials.title")}</h2>
    <p>${t("credentials.text", { path: "POST /oauth/token" })}</p>
    <dl>
      <dt>${t("credentials.id")}</dt><dd id="client-id">${client.client_id}</dd>
      <dt>${t("credentials.secret")}</dt><dd id="client-secret">${client.client_secret}</dd>
    </dl>
    <button id="credentials-kept" type="button" onClick=${kept}>${t("credentials.kept")}</button>
  </section>`;
}
