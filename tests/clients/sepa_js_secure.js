// Drives the secure mode of @arces-wot/sepa-js, unmodified: registers, changes, queries, receives notifications. One JSON object a line.
const https = require("https");
const fs = require("fs");
const readline = require("readline");
const SecureSEPA = require("@arces-wot/sepa-js").client.secure;
const defaults = require("@arces-wot/sepa-js/lib/defaults");

const [authority, httpsPort, wssPort, identity] = process.argv.slice(2);
const agent = new https.Agent({ ca: fs.readFileSync(authority) });
const at = `https://localhost:${httpsPort}`;
const config = {
  ...defaults,
  host: "localhost",
  oauth: { register: `${at}/oauth/register`, tokenRequest: `${at}/oauth/token` },
  sparql11seprotocol: {
    protocol: "wss",
    availableProtocols: { wss: { port: Number(wssPort), path: "/secure/subscribe" } },
  },
  options: { httpsAgent: agent },
};

function say(object) { process.stdout.write(JSON.stringify(object) + "\n"); }

async function run(update, query, subscribe) {
  const client = await SecureSEPA.register(identity, config);
  client.config.sparql11protocol.port = Number(httpsPort); // it takes for granted that this is 8443
  say({ event: "updated", status: (await client.update(update)).status });
  say({ event: "result", data: await client.query(query) });
  const subscription = client.subscribe(subscribe, undefined, "alias");
  subscription.on("added", (data) => {
    say({ event: "added", data });
    subscription.unsubscribe();
  });
  subscription.on("unsubscribed", () => {
    say({ event: "unsubscribed" });
    process.exit(0);
  });
  subscription.on("error", (data) => say({ event: "error", data }));
}

const lines = [];
readline.createInterface({ input: process.stdin }).on("line", (line) => lines.push(line)).on("close", () =>
  run(...lines).catch((error) => {
    say({ event: "failed", error: String(error), data: error.response && error.response.data });
    process.exit(1);
  }));
