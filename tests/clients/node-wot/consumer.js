// Consumes the things of a gateway with node-wot, unmodified. Prints the results as one JSON object.
const { Servient } = require("@node-wot/core");
const { HttpClientFactory } = require("@node-wot/binding-http");

const [base, iri] = process.argv.slice(2);

async function refusal(action) {
  try {
    await action();
  } catch (error) {
    return error.message;
  }
}

async function main() {
  const servient = new Servient();
  servient.addClientFactory(new HttpClientFactory());
  const url = `${base}/.well-known/wot`;
  const wot = await servient.start();
  const found = { explored: [], all: {} };
  for await (const thing of await wot.exploreDirectory(url)) found.explored.push(thing.id);
  const directory = await wot.consume(await wot.requestThingDescription(url));
  const query = `ASK { <${iri}> ?p ?o }`;
  const search = await directory.invokeAction("searchSPARQL", undefined, { uriVariables: { query } });
  found.search = (await search.value()).boolean;
  const retrieved = await directory.invokeAction("retrieveThing", undefined, { uriVariables: { id: iri } });
  const lamp = await wot.consume(await retrieved.value());
  for (const [name, output] of await lamp.readAllProperties()) found.all[name] = await output.value();
  found.tooBright = await refusal(() => lamp.writeProperty("brightness", 300));
  found.readOnly = await refusal(() => lamp.writeProperty("temperature", 20));
  found.observed = [];
  let reported;
  const dimmed = new Promise((resolve) => (reported = resolve));
  const subscription = await lamp.observeProperty("brightness", async (output) => {
    found.observed.push(await output.value());
    if (found.observed.at(-1) === 77) reported();
    else await lamp.writeProperty("brightness", 77);
  });
  await dimmed;
  await subscription.stop();
  await servient.shutdown();
  return found;
}

main().then((found) => console.log(JSON.stringify(found)));
