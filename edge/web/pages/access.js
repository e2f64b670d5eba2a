// Clients: names, rights, invitations, tokens, and the certificate that they have to trust.
import { html, useEffect, useRef, useSignal } from "../ui.js";
import { access, may } from "../model/access.js";
import { getJson, request } from "../model/gateway.js";
import { now } from "../model/live.js";
import { usePolled } from "../model/polled.js";
import { ago, formatTime, t } from "../model/text.js";
import { useAction } from "../parts/action.js";
import { announce } from "../parts/announcer.js";
import { Fold } from "../parts/fold.js";
import { Qr } from "../parts/qr.js";
import { PRESETS, Rights, rightsOf, summary } from "../parts/rights.js";

const AGAIN = 5000;  // ms
const HOUR = 3600, DAY = 24 * HOUR;
const TIMES = { "access.minutes": [600, 10], "access.hours": [HOUR, 1], "access.days": [DAY, 1], "access.days.7": [7 * DAY, 7], "access.days.90": [90 * DAY, 90], "access.days.365": [365 * DAY, 365] };
const OVER = ["revoked", "expired", "damaged"], HAS_TOKENS = ["registered", "allowed", "trusted"];
const LOOPBACK = /^(localhost|127\.|\[::1?\]$)/;

export function Page() {
  useEffect(() => { document.title = `${t("access.title")} · sepa-edge`; }, []);
  const allowed = Boolean(access.value?.client) && may("administer");
  const [found, error, look] = usePolled(() => getJson("/api/clients"), AGAIN, allowed);
  if (!access.value) return html`<h1>${t("access.title")}</h1>`;
  if (!access.value.client) return html`<h1>${t("access.title")}</h1><p class="note">${t("access.off")}</p><pre tabindex="0" dir="ltr">${'[security]\nenabled = true\nhost = "0.0.0.0"\n'}</pre>`;
  if (!allowed) return html`<h1>${t("access.title")}</h1><p class="note">${t("access.forbidden")}</p>`;
  const clients = found.value?.clients ?? [];
  return html`<h1>${t("access.title")}</h1>
    <p class="problem" role="alert">${error}</p>
    <${Invite} changed=${look} />
    ${found.value && html`<section class="panel wide" id="clients"><h2>${t("access.clients", { n: clients.length })}</h2>
      <ul class="list">${clients.map((client) => html`<${Client} key=${client.identity} client=${client} changed=${look} />`)}</ul></section>
    <${Opening} opening=${found.value.opening} changed=${look} />`}
    <${Certificate} />`;
}

function post(path, method, body) {
  return getJson(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

function Times({ name, from = 0, chosen }) {
  return html`<select name=${name} aria-label=${t("access.valid")}>${Object.entries(TIMES).slice(from).map(([key, [seconds, n]]) => html`<option value=${seconds} selected=${seconds === chosen}>${t(key.replace(/\.\d+$/, ""), { n })}</option>`)}</select>`;
}

function Invite({ changed }) {
  const preset = useSignal("reader"), made = useSignal(undefined);
  const [act, problem] = useAction();
  const invite = (event) => {
    event.preventDefault();
    const form = event.target, { identity, seconds } = form.elements;
    act(async () => {
      const { invitation } = await post("/api/invitations", "POST", { identity: identity.value.trim(), seconds: Number(seconds.value), rights: rightsOf(form) });
      made.value = { ...invitation, link: new URL(`#/join/${invitation.code}`, await address()).href, until: Date.now() + invitation.seconds * 1000 };
      identity.value = "";
      announce(t("access.invited", { identity: invitation.identity }));
      changed();
    });
  };
  return html`<details class="panel wide" id="invite" open=${Boolean(made.value)}><summary>${t("access.invite")}</summary>
    <form class="rows" onSubmit=${invite}>
      <label for="identity">${t("access.name")}</label>
      <input id="identity" name="identity" required maxlength="200" pattern="[\\w.:@\\/+\\-]+" title=${t("access.name.help")} autocomplete="off" aria-describedby="identity-help" />
      <p id="identity-help">${t("access.name.help")}</p>
      <label for="preset">${t("access.preset")}</label>
      <select id="preset" onChange=${(event) => { preset.value = event.target.value; }}>${Object.keys(PRESETS).map((name) => html`<option value=${name} selected=${name === preset.value}>${t(`access.preset.${name}`)}</option>`)}</select>
      <details><summary>${t("access.detail")}</summary><${Rights} key=${preset.value} rights=${PRESETS[preset.value]} /></details>
      <label>${t("access.valid")} <${Times} name="seconds" from=${1} chosen=${DAY} /></label>
      <button type="submit">${t("access.invite.do")}</button>
    </form>
    ${problem}
    ${made.value && html`<${Invitation} invitation=${made.value} />`}
  </details>`;
}

/** The address of this gateway for other machines, as far as it is known here. */
async function address() {
  const here = new URL(".", document.baseURI);  // a proxy may serve the page below a path
  if (!LOOPBACK.test(location.hostname)) return here;
  const { https } = await getJson("/api/endpoints");
  return https ?? here;
}

function Invitation({ invitation: { identity, code, link, until } }) {
  return html`<div id="invitation" class="invitation"><${Qr} text=${link} label=${t("access.qr", { identity })} />
    <div><h2>${t("access.invited", { identity })}</h2><p>${t("access.invited.text", { time: formatTime(until) })}</p>
      ${LOOPBACK.test(new URL(link).hostname) && html`<p class="problem">${t("access.loopback")}</p>`}
      <dl><dt>${t("enrolment.code")}</dt><dd><code id="invitation-code" dir="ltr">${code}</code></dd><dt>${t("access.link")}</dt><dd><code dir="ltr">${link}</code></dd></dl></div></div>`;
}

function Client({ client, changed }) {
  const { identity, state, since, until, oscore, rights } = client;
  const own = identity === access.value.client, over = OVER.includes(state);
  const end = until && t(["invited", "expired"].includes(state) ? "access.code.until" : "access.token.until", { time: formatTime(until / 1000) });
  return html`<li id=${`client-${identity}`} tabindex="-1"><p><span class="mark" data-state=${over ? "bad" : "good"}>${t(`access.state.${state}`)}</span> <b dir="auto">${identity}</b> ${own && html`<small>${t("access.you")}</small>`}
    <time title=${formatTime(since / 1000)}> ${since > 0 && ago(since / 1000, now.value)}</time></p>
    ${!over && html`<p dir="auto">${summary(rights)}</p>`}
    ${(end || oscore) && html`<p><small>${[end, oscore && t("access.oscore")].filter(Boolean).join(" · ")}</small></p>`}
    <${Fold} text=${t(over ? "access.allow" : "access.change")} label=${identity}>${(close) => html`<${Change} client=${client} saved=${() => { close(); changed(); }} />`}<//>
    ${HAS_TOKENS.includes(state) && !identity.includes(" ") && identity !== access.value?.client && html`<${Fold} text=${t("access.token")} label=${identity}>${() => html`<${Token} identity=${identity} changed=${changed} />`}<//>`}
    ${!own && state !== "revoked" && html`<${Fold} text=${t("access.revoke")} label=${identity}>${() => html`<${Revoke} identity=${identity} changed=${changed} />`}<//>`}</li>`;
}

function path(identity) {
  return `/api/clients/${encodeURIComponent(identity)}`;
}

function Change({ client: { identity, rights }, saved }) {
  const [act, problem] = useAction();
  const save = (event) => {
    event.preventDefault();
    const form = event.target;
    act(async () => {
      await post(path(identity), "PUT", { rights: rightsOf(form) });
      announce(t("access.changed", { identity }));
      saved();
    });
  };
  return html`<form class="rows" onSubmit=${save}><${Rights} rights=${rights} /><button type="submit">${t("access.save")}</button></form>${problem}`;
}

function Token({ identity, changed }) {
  const token = useSignal("");
  const [act, problem] = useAction();
  const issue = (event) => {
    event.preventDefault();
    const seconds = Number(event.target.elements.seconds.value);
    act(async () => {
      token.value = (await post("/api/tokens", "POST", { identity, seconds })).token.access_token;
      changed();
    });
  };
  return html`<p>${t("access.token.text")}</p>
    <form class="bar" onSubmit=${issue}><${Times} name="seconds" from=${2} chosen=${90 * DAY} /><button type="submit">${t("access.token.do")}</button></form>
    ${token.value && html`<pre tabindex="0" dir="ltr" class="token">${token}</pre>`}${problem}`;
}

function Revoke({ identity, changed }) {
  const [act, problem] = useAction();
  const entry = useRef();
  const revoke = () => act(async () => {
    await request(path(identity), { method: "DELETE" });
    entry.current?.closest("li").focus();  // the button goes
    announce(t("access.revoked", { identity }));
    changed();
  });
  return html`<p>${t("access.revoke.text")}</p><button ref=${entry} type="button" class="danger" onClick=${revoke}>${t("access.revoke.do")}</button>${problem}`;
}

function Opening({ opening, changed }) {
  const [act, problem] = useAction();
  const open = (seconds, rights) => act(async () => {
    await post("/api/opening", "PUT", { seconds, rights });
    changed();
  });
  const submit = (event) => {
    event.preventDefault();
    open(Number(event.target.elements.seconds.value), rightsOf(event.target));
  };
  return html`<details class="panel wide" id="opening" open=${Boolean(opening)}><summary>${t("access.opening")}</summary><p>${t("access.opening.text")}</p>
    ${opening
    ? html`<p><b>${t("access.opening.until", { time: formatTime(opening.until / 1000) })}</b> ${summary(opening.rights)}</p><button type="button" onClick=${() => open(0, { actions: [] })}>${t("access.opening.end")}</button>`
    : html`<form class="rows" onSubmit=${submit}><${Rights} rights=${PRESETS.reader} /><label>${t("access.valid")} <${Times} name="seconds" chosen=${600} /></label><button type="submit">${t("access.opening.do")}</button></form>`}
    ${problem}</details>`;
}

function Certificate() {
  const [found, error] = usePolled(() => getJson("/api/certificate"), 60000);
  const state = found.value;
  return html`<section class="panel wide" id="certificate"><h2>${t("access.certificate")}</h2><p class="problem" role="alert">${error}</p>
    ${state && html`<dl><dt>${t("access.certificate.names")}</dt><dd>${state.names.join(", ")}</dd>
      <dt>${t("access.certificate.until")}</dt><dd>${formatTime(Date.parse(state.not_after))}</dd>
      <dt>${t("access.certificate.issuer")}</dt><dd dir="auto">${state.issuer}</dd>
      <dt>SHA-256</dt><dd dir="ltr"><code>${state.sha256}</code></dd></dl>
      ${state.authority && html`<p>${t("access.certificate.text")}</p><a class="button" download="ca.pem" href=${`data:application/x-x509-ca-cert,${encodeURIComponent(state.authority)}`}>${t("access.certificate.download")}</a>`}`}
  </section>`;
}
