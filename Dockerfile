# Two images from one file:
#   docker build -t ackd .                          the sidecar, the injector and the commands
#   docker build -t ackd-reports --target reports . reports on service levels (Spark, Java)
#
# The base is pinned by the digest of its index. A newer one, or one of your own:
#   --build-arg PYTHON=python:3.14-slim-bookworm@sha256:...
ARG PYTHON=python:3.13.14-slim-bookworm@sha256:67a1e1f215ccda113cfc024e8639049257e88f273898f595b61476d128d387e8
ARG VERSION=0.1.0
ARG REVISION=unknown

# --- what goes into both: a wheel of ackd, made with generated protocol classes
FROM ${PYTHON} AS wheel
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY requirements/rocketmq-protocol.txt requirements/
COPY sidecar sidecar
COPY adapters adapters
COPY spark_reports spark_reports
RUN python -m pip wheel --no-deps --wheel-dir /wheels .

# --- the sidecar's environment: versions and hashes from the lock, and nothing that builds
FROM ${PYTHON} AS environment
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/image.lock requirements/sbom.lock /
RUN python -m venv /opt/sbom \
  && /opt/sbom/bin/pip install --require-hashes -r /sbom.lock \
  && python -m venv /opt/ackd \
  && /opt/ackd/bin/pip install --require-hashes -r /image.lock
COPY --from=wheel /wheels /wheels
# A read-only root can never write bytecode: it is made here, and trusted without looking at sources.
RUN /opt/ackd/bin/pip install --no-deps --no-index /wheels/*.whl \
  && /opt/ackd/bin/pip uninstall --yes pip \
  && /opt/sbom/bin/cyclonedx-py environment --output-file /opt/ackd/sbom.cdx.json /opt/ackd/bin/python \
  && python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash /opt/ackd/lib

# --- reports: the same, with Spark and the Java that it needs
FROM ${PYTHON} AS reports
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="ackd-reports" \
  org.opencontainers.image.description="Reports on service levels from ackd's traces" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
  && rm -rf /var/lib/apt/lists/*
COPY requirements/reports.lock /
COPY --from=wheel /wheels /wheels
RUN python -m venv /opt/ackd \
  && /opt/ackd/bin/pip install --require-hashes -r /reports.lock \
  && /opt/ackd/bin/pip install --no-deps --no-index /wheels/*.whl \
  && python -m compileall -q -f -j 0 --invalidation-mode unchecked-hash /opt/ackd/lib
ENV PATH=/opt/ackd/bin:$PATH HOME=/tmp MPLCONFIGDIR=/tmp
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["ackd", "report"]

# --- the sidecar, last so that it is what is built by default
FROM ${PYTHON} AS sidecar
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="ackd" \
  org.opencontainers.image.description="Leases messages of Kafka and other brokers over HTTP, and keeps every ack" \
  org.opencontainers.image.licenses="Apache-2.0" \
  org.opencontainers.image.version="${VERSION}" \
  org.opencontainers.image.revision="${REVISION}"
COPY --from=environment /opt/ackd /opt/ackd
ENV PATH=/opt/ackd/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /
EXPOSE 7080 7081 7082
ENTRYPOINT ["ackd"]
CMD ["serve"]
