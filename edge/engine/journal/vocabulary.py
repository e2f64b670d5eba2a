"""Preset dictionary for the compression of small journal bodies: the N-Quads of typical readings.

A single reading is about 700 bytes of text, most of it IRIs of vocabularies. With a preset dictionary (RFC 1950,
section 2.2) the compressor refers to them instead of writing them again.
"""

from __future__ import annotations

from typing import Final

# Never change it: stored bodies cannot be read without exactly these bytes. Another dictionary needs another flag in
# `codec`. The most frequent texts come last, because short distances take fewer bits.
VOCABULARY: Final = (
    b"<http://www.w3.org/2000/01/rdf-schema#comment> <http://www.w3.org/2000/01/rdf-schema#label> "
    b"<http://www.w3.org/ns/sosa/madeBySensor> <http://www.w3.org/ns/sosa/observedProperty> "
    b"<http://www.w3.org/ns/sosa/hasFeatureOfInterest> <http://www.w3.org/ns/sosa/Observation> "
    b"<http://www.w3.org/ns/sosa/hasResult> <http://qudt.org/1.1/schema/qudt#QuantityValue> "
    b"<http://qudt.org/1.1/schema/qudt#unit> <http://qudt.org/1.1/vocab/unit#"
    b"<http://mml.arces.unibo.it/monitor#hasMqttTopic> <http://mml.arces.unibo.it/monitor#hasMappingDigest> "
    b"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/2006/time#hasTime> "
    b"<http://www.w3.org/2006/time#Instant> <http://example.org/ <http://localhost/ <urn:uuid: _:"
    b'"false" "true"^^<http://www.w3.org/2001/XMLSchema#boolean> .\n"^^<http://www.w3.org/2001/XMLSchema#double> .\n'
    b'"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
    b'-instant> <http://www.w3.org/2006/time#inXSDDateTimeStamp> "202-0-T:Z"^^<http://www.w3.org/2001/XMLSchema#dateTime'
    b"> .\n<http://mml.arces.unibo.it/monitor#QuantityValue-"
    b'> <http://qudt.org/1.1/schema/qudt#numericValue> "."^^<http://www.w3.org/2001/XMLSchema#decimal> .\n'
)
