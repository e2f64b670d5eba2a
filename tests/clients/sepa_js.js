// Drives @arces-wot/sepa-js, unmodified. Prints one JSON object a line; reads commands from standard input.
const readline = require("readline");
const { SEPA, Jsap } = require("@arces-wot/sepa-js");
const defaults = require("@arces-wot/sepa-js/lib/defaults");

const [host, httpPort, wsPort] = process.argv.slice(2);
const parameters = {
  ...defaults,
  host,
  sparql11protocol: { ...defaults.sparql11protocol, port: Number(httpPort) },
  sparql11seprotocol: {
    protocol: "ws",
    availableProtocols: { ws: { port: Number(wsPort), path: "/subscribe" } },
  },
};
const client = new SEPA(parameters);
const subscriptions = {};

function say(object) { process.stdout.write(JSON.stringify(object) + "\n"); }

function watch(alias, subscription) {
  subscriptions[alias] = subscription;
  for (const event of ["subscribed", "notification", "added", "removed", "error", "unsubscribed", "connection-error"]) {
    subscription.on(event, (data) => say({ alias, event, data }));
  }
}

const commands = {
  query: (sparql) => client.query(sparql).then((data) => say({ event: "result", data }), failed),
  update: (sparql) => client.update(sparql).then((data) => say({ event: "updated", data }), failed),
  subscribe: (sparql, alias) => watch(alias, client.subscribe(sparql, undefined, alias)),
  jsap: (sparql, alias) => {
    const jsap = new Jsap({ ...parameters, namespaces: { t: "urn:t:" }, queries: { VALUE: { sparql, forcedBindings: {} } } });
    watch(alias, jsap.VALUE({}));
  },
  unsubscribe: (alias) => subscriptions[alias].unsubscribe(),
};

function failed(error) {
  say({ event: "failed", status: error.response && error.response.status, data: error.response && error.response.data });
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const [command, ...values] = JSON.parse(line);
  commands[command](...values);
}).on("close", () => process.exit(0));
say({ event: "up" });
