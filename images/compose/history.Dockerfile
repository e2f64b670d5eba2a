# The Spark side of the gateway. Put the wheel of the release next to this file: sepa_edge-VERSION-py3-none-any.whl
FROM docker.io/library/debian:trixie-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-21-jre-headless procps python3-venv \
 && rm -rf /var/lib/apt/lists/*
COPY sepa_edge-*-py3-none-any.whl /tmp/
ENV PATH=/opt/sepa-edge/bin:/usr/bin:/bin EDGE_HISTORY_JARS=/opt/sepa-edge/jars HOME=/tmp SPARK_LOCAL_HOSTNAME=localhost
RUN python3 -m venv /opt/sepa-edge \
 && for wheel in /tmp/sepa_edge-*.whl; do /opt/sepa-edge/bin/pip install --no-cache-dir "$wheel[spark]"; done \
 && edge-history jars && chmod -R a+rX /opt/sepa-edge \
 && mkdir -p /srv/history /srv/landing && chown 65532:65532 /srv/history /srv/landing
# Hadoop needs a name for the user.
RUN groupadd --gid 65532 sepa-edge \
 && useradd --uid 65532 --gid sepa-edge --home-dir /tmp --no-create-home sepa-edge
USER 65532:65532
VOLUME ["/srv/history", "/srv/landing"]
ENTRYPOINT ["edge-history"]
