// Common prefixes, as the gateway's error messages offer them (`edge.sparql.explanation`).
export const PREFIXES = {
  dcterms: "http://purl.org/dc/terms/",
  foaf: "http://xmlns.com/foaf/0.1/",
  geo: "http://www.opengis.net/ont/geosparql#",
  owl: "http://www.w3.org/2002/07/owl#",
  qudt: "http://qudt.org/1.1/schema/qudt#",
  rdf: "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
  rdfs: "http://www.w3.org/2000/01/rdf-schema#",
  saref: "https://saref.etsi.org/core/",
  schema: "https://schema.org/",
  skos: "http://www.w3.org/2004/02/skos/core#",
  sosa: "http://www.w3.org/ns/sosa/",
  ssn: "http://www.w3.org/ns/ssn/",
  time: "http://www.w3.org/2006/time#",
  unit: "http://qudt.org/1.1/vocab/unit#",
  wot: "https://www.w3.org/2019/wot/td#",
  xsd: "http://www.w3.org/2001/XMLSchema#",
};

// Vocabularies that exist in several versions. The graph decides which one a name stands for.
const VERSIONS = { qudt: ["http://qudt.org/schema/qudt/"], unit: ["http://qudt.org/vocab/unit/"], schema: ["http://schema.org/"] };

const namespaces = Object.entries(PREFIXES).concat(Object.entries(VERSIONS).flatMap(([name, all]) => all.map((each) => [name, each])));

/** {prefix, namespace, local} of an IRI; undefined if no known prefix gives a name for it. */
export function split(iri) {
  const [prefix, namespace] = namespaces.find(([, each]) => iri.startsWith(each)) ?? [];
  const local = prefix && iri.slice(namespace.length);
  return local && /^[\p{L}\p{N}_](?:[\p{L}\p{N}_.-]*[\p{L}\p{N}_-])?$/u.test(local) ? { prefix, namespace, local } : undefined;
}

/** An IRI as people write it: `sosa:Observation`, or `<urn:x>`. */
export function shortened(iri) {
  const found = split(iri);
  return found ? `${found.prefix}:${found.local}` : `<${iri}>`;
}
