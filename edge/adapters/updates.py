"""Constant SPARQL texts of the adapters: ADD_OBSERVATION, UPDATE_VALUE and related updates.

Values are passed as forced bindings, so each text is parsed only once. A template triple with an unbound variable is
left out (SPARQL 1.1 Update, section 3.1.3). One text therefore serves observations with and without unit, label,
value or time. WHERE is a basic graph pattern with OPTIONALs that contain only triples and are not nested: the engine
evaluates these on its index.
"""

from __future__ import annotations

from edge.adapters.terms import PREFIXES

ADD_OBSERVATION = (
    PREFIXES
    + """
DELETE { ?observation ?p ?o . ?q ?p1 ?o1 . ?i ?p2 ?o2 }
INSERT {
  ?observation rdf:type sosa:Observation ; rdfs:label ?label ; rdfs:comment ?comment ;
    sosa:hasFeatureOfInterest ?location ; sosa:observedProperty ?property ; sosa:madeBySensor ?sensor ;
    arces-monitor:hasMqttTopic ?topic ; arces-monitor:hasMappingDigest ?digest ; sosa:hasResult ?quantity ;
    sosa:resultTime ?resultTime .
  ?quantity rdf:type qudt-1-1:QuantityValue ; qudt-1-1:unit ?unit ; qudt-1-1:numericValue ?value ;
    time:hasTime ?instant .
  ?instant rdf:type time:Instant ; time:inXSDDateTimeStamp ?time
}
WHERE {
  OPTIONAL { ?observation rdf:type sosa:Observation ; ?p ?o }
  OPTIONAL { ?observation rdf:type sosa:Observation ; sosa:hasResult ?q . ?q ?p1 ?o1 }
  OPTIONAL { ?observation rdf:type sosa:Observation ; sosa:hasResult ?q . ?q time:hasTime ?i . ?i ?p2 ?o2 }
}"""
)
"""Listing 18, ADD_OBSERVATION: replaces description and quantity, and sets the first value."""

DESCRIBE_THING = (
    PREFIXES
    + """
INSERT { ?thing rdf:type ?type ; rdfs:label ?label ; arces-monitor:hasMappingDigest ?digest }
WHERE {
  FILTER NOT EXISTS { ?thing rdf:type ?anyType }
  FILTER NOT EXISTS { ?thing rdfs:label ?anyLabel }
}"""
)
"""Gives a sensor, a property or a place its type and label, unless a client has.

By the digest, `edge forget` knows that the gateway wrote both.
"""

RENAME_THING = (
    PREFIXES
    + """
DELETE { ?thing rdfs:label ?old ; arces-monitor:hasMappingDigest ?oldDigest }
INSERT { ?thing rdfs:label ?label ; arces-monitor:hasMappingDigest ?digest }
WHERE {
  ?thing arces-monitor:hasMappingDigest ?oldDigest ; rdfs:label ?old .
  FILTER(?oldDigest = SUBSTR(SHA256(CONCAT(STR(?type), " ", STR(?old))), 1, 16) && ?oldDigest != ?digest)
}"""
)
"""Gives a thing another label, if the gateway wrote the one before: then its digest fits."""

FORGET_THINGS = (
    PREFIXES
    + """
DELETE { ?thing rdf:type ?type ; rdfs:label ?label ; arces-monitor:hasMappingDigest ?digest }
WHERE {
  ?observation ?link ?thing .
  ?thing arces-monitor:hasMappingDigest ?digest ; rdf:type ?type ; rdfs:label ?label .
  FILTER(?link IN (sosa:madeBySensor, sosa:observedProperty, sosa:hasFeatureOfInterest))
  FILTER(?thing != ?observation && ?thing != ?sensor && ?thing != ?property && ?thing != ?location)
  FILTER(?digest = SUBSTR(SHA256(CONCAT(STR(?type), " ", STR(?label))), 1, 16))
  FILTER NOT EXISTS { ?user ?other ?thing FILTER(?user != ?observation) }
} ;
DELETE { ?thing rdf:type ?type ; arces-monitor:hasMappingDigest ?digest }
INSERT { ?thing rdf:type ?newType ; arces-monitor:hasMappingDigest ?newDigest }
WHERE {
  VALUES (?link ?type) { THINGS }
  ?observation ?link ?thing .
  ?thing arces-monitor:hasMappingDigest ?digest ; rdf:type ?type ; rdfs:label ?label .
  FILTER(
    ?link = sosa:madeBySensor && ?thing != ?sensor || ?link = sosa:observedProperty && ?thing != ?property ||
    ?link = sosa:hasFeatureOfInterest && ?thing != ?location
  )
  FILTER(?digest = SUBSTR(SHA256(CONCAT(STR(?type), " ", STR(?label))), 1, 16))
  FILTER NOT EXISTS { ?user ?link ?thing FILTER(?user != ?observation) }
  VALUES (?newLink ?newType) { THINGS }
  FILTER(?newLink != ?link)
  FILTER(
    ?newLink = sosa:madeBySensor && ?thing = ?sensor || ?newLink = sosa:observedProperty && ?thing = ?property ||
    ?newLink = sosa:hasFeatureOfInterest && ?thing = ?location ||
    EXISTS { ?another ?newLink ?thing FILTER(?another != ?observation) }
  )
  BIND(SUBSTR(SHA256(CONCAT(STR(?newType), " ", STR(?label))), 1, 16) AS ?newDigest)
}""".replace(
        "THINGS",
        "(sosa:madeBySensor sosa:Sensor) (sosa:observedProperty sosa:ObservableProperty) "
        "(sosa:hasFeatureOfInterest sosa:FeatureOfInterest)",
    )
)
"""Deletes what the gateway wrote about the former things of an observation, if nothing else refers to them.

A thing that others refer to in another way gets the type that fits: a sensor that is a place now.
"""

GIVE_QUANTITY = (
    PREFIXES
    + """
DELETE { ?observation sosa:resultTime ?oldResultTime }
INSERT {
  ?observation sosa:hasResult ?quantity ; sosa:resultTime ?resultTime .
  ?quantity rdf:type qudt-1-1:QuantityValue ; qudt-1-1:unit ?unit ; qudt-1-1:numericValue ?value ;
    time:hasTime ?instant .
  ?instant rdf:type time:Instant ; time:inXSDDateTimeStamp ?time
}
WHERE {
  ?observation rdf:type sosa:Observation .
  OPTIONAL { ?observation sosa:resultTime ?oldResultTime }
}"""
)
"""Adds a result to an observation that a client described without one; the client's description stays.

A result time that the observation has is that of a former result.
"""

UPDATE_VALUE = (
    PREFIXES
    + """
DELETE { ?quantity qudt-1-1:numericValue ?oldValue }
INSERT { ?quantity qudt-1-1:numericValue ?value }
WHERE {
  ?observation rdf:type sosa:Observation ; sosa:hasResult ?quantity .
  OPTIONAL { ?quantity qudt-1-1:numericValue ?oldValue }
}"""
)
"""Listing 18, UPDATE_VALUE, unchanged: for quantities without an IRI, which have no instant."""

UPDATE_VALUE_AND_TIME = (
    PREFIXES
    + """
DELETE { ?quantity qudt-1-1:numericValue ?oldValue . ?instant time:inXSDDateTimeStamp ?oldTime }
INSERT {
  ?quantity qudt-1-1:numericValue ?value ; time:hasTime ?instant .
  ?instant rdf:type time:Instant ; time:inXSDDateTimeStamp ?time
}
WHERE {
  ?observation rdf:type sosa:Observation ; sosa:hasResult ?quantity .
  OPTIONAL { ?quantity qudt-1-1:numericValue ?oldValue }
  OPTIONAL { ?instant time:inXSDDateTimeStamp ?oldTime }
}"""
)
"""UPDATE_VALUE with the time of measurement in one update, so that subscribers always see both together."""

UPDATE_VALUE_AND_RESULT_TIME = (
    PREFIXES
    + """
DELETE {
  ?quantity qudt-1-1:numericValue ?oldValue . ?instant time:inXSDDateTimeStamp ?oldTime .
  ?observation sosa:resultTime ?oldResultTime
}
INSERT {
  ?observation sosa:resultTime ?resultTime .
  ?quantity qudt-1-1:numericValue ?value ; time:hasTime ?instant .
  ?instant rdf:type time:Instant ; time:inXSDDateTimeStamp ?time
}
WHERE {
  ?observation rdf:type sosa:Observation ; sosa:hasResult ?quantity .
  OPTIONAL { ?quantity qudt-1-1:numericValue ?oldValue }
  OPTIONAL { ?instant time:inXSDDateTimeStamp ?oldTime }
  OPTIONAL { ?observation sosa:resultTime ?oldResultTime }
}"""
)
"""UPDATE_VALUE_AND_TIME for a time that the message has: SOSA's result time tells it from a time of arrival."""

UPDATE_VALUE_AND_TIME_OF_ARRIVAL = (
    PREFIXES
    + """
DELETE {
  ?quantity qudt-1-1:numericValue ?oldValue . ?instant time:inXSDDateTimeStamp ?oldTime .
  ?observation sosa:resultTime ?oldTime
}
INSERT {
  ?quantity qudt-1-1:numericValue ?value ; time:hasTime ?instant .
  ?instant rdf:type time:Instant ; time:inXSDDateTimeStamp ?time
}
WHERE {
  ?observation rdf:type sosa:Observation ; sosa:hasResult ?quantity .
  OPTIONAL { ?quantity qudt-1-1:numericValue ?oldValue }
  OPTIONAL { ?instant time:inXSDDateTimeStamp ?oldTime }
}"""
)
"""UPDATE_VALUE_AND_TIME after a value whose message had a time: removes that result time, which equals the old time.

A result time that a client wrote differs from the time of the value, so it stays.
"""

UPDATE_VALUE_WITHOUT_TIME = (
    PREFIXES
    + """
DELETE {
  ?quantity qudt-1-1:numericValue ?oldValue ; time:hasTime ?instant .
  ?instant rdf:type time:Instant ; time:inXSDDateTimeStamp ?oldTime .
  ?observation sosa:resultTime ?oldTime
}
INSERT { ?quantity qudt-1-1:numericValue ?value }
WHERE {
  ?observation rdf:type sosa:Observation ; sosa:hasResult ?quantity .
  OPTIONAL { ?quantity qudt-1-1:numericValue ?oldValue }
  OPTIONAL { ?instant time:inXSDDateTimeStamp ?oldTime }
}"""
)
"""UPDATE_VALUE for a value without time: removes the times of the previous value."""

CLEAR_VALUE = (
    PREFIXES
    + """
DELETE { ?quantity qudt-1-1:numericValue ?oldValue }
WHERE {
  ?observation rdf:type sosa:Observation ; sosa:hasResult ?quantity .
  ?quantity qudt-1-1:numericValue ?oldValue
}"""
)
"""Removes the value before that of an event, in an update of its own: so subscribers see an equal value, too."""

FORGET_INSTANT = (
    PREFIXES
    + """
DELETE {
  ?instant rdf:type time:Instant ; time:inXSDDateTimeStamp ?time .
  ?observation sosa:resultTime ?time
}
WHERE { ?instant time:inXSDDateTimeStamp ?time }"""
)
"""Deletes the times of a deleted quantity: a client's ADD_OBSERVATION does not know instants and leaves them."""

OBSERVATIONS = (
    PREFIXES
    + """
SELECT ?observation ?quantity ?topic ?digest
WHERE {
  ?observation rdf:type sosa:Observation .
  OPTIONAL { ?observation sosa:hasResult ?quantity }
  OPTIONAL { ?observation arces-monitor:hasMqttTopic ?topic }
  OPTIONAL { ?observation arces-monitor:hasMappingDigest ?digest }
}"""
)
"""State of the graph that the adapters follow: Listing 18, TOPICS, and the quantities. New values do not affect it."""

NOTHING = "INSERT DATA {}"
"""Changes nothing: the update of a past reading, which has only an entry for the history."""
