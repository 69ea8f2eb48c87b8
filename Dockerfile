# One image for all processes of the platform: four programs and the C library, without shell or package manager.
# A fifth program, dev-world, runs only in the profile `dev` of docker-compose.yml.
#
#   docker build -t tollhouse:local .                                     from source, for releases
#   docker build -t tollhouse:local --target prebuilt -f Dockerfile DIR   with the programs in DIR
#
# The stage `prebuilt` is before `build` because builders without BuildKit run every stage up to the requested one. On
# the source tree `prebuilt` then copies folders in place of programs, into an unused image.

FROM gcr.io/distroless/cc-debian12:nonroot AS empty

FROM gcr.io/distroless/cc-debian12:nonroot AS base
# A new volume gets the owner of the directory that it covers. The image has no mkdir, so an empty home is copied.
COPY --from=empty --chown=65532:65532 /home/nonroot /data
COPY --from=empty --chown=65532:65532 /home/nonroot /data/test-world
COPY --from=empty --chown=65532:65532 /home/nonroot /run/tollhouse
COPY --from=empty --chown=65532:65532 /home/nonroot /shares/gateway-1
COPY --from=empty --chown=65532:65532 /home/nonroot /shares/gateway-2
COPY --from=empty --chown=65532:65532 /home/nonroot /shares/gateway-more
COPY --from=empty --chown=65532:65532 /home/nonroot /shares/orders-service
COPY --from=empty --chown=65532:65532 /home/nonroot /shares/domains-service
COPY --from=empty --chown=65532:65532 /home/nonroot /shares/redis
COPY --from=empty --chown=65532:65532 /home/nonroot /shares/postgres
COPY --from=empty --chown=65532:65532 /home/nonroot /shares/prometheus
COPY --from=empty --chown=65532:65532 /home/nonroot /shares/grafana
USER 65532:65532
# A container has a nameserver for each network. If one is silent, the resolver tries the next after one second, not five,
# and starts with a different one each time.
ENV TOLLHOUSE_DATA_DIR=/data RES_OPTIONS="timeout:1 attempts:2 rotate"
CMD ["tollhouse", "--help"]

FROM base AS prebuilt
COPY gateway orders-service domains-service tollhouse dev-world /usr/local/bin/

FROM docker.io/library/rust:1.95.0-slim-bookworm AS build
# make and cmake: the C code of some dependencies. Their versions do not reach the image.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends cmake make \
    && rm -rf /var/lib/apt/lists/*
# The toolchain of this image, without the components that rust-toolchain.toml adds for development.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
# `dist` is for releases; `dev` builds in a fraction of the time.
ARG PROFILE=dist
ENV TOLLHOUSE_BUILD=$PROFILE
RUN cargo build --locked --profile "$PROFILE" \
        --package gateway --package orders-service --package domains-service --package tollhouse \
        --package dev-world --bins \
    && mkdir /programs \
    && folder=$(test "$PROFILE" = dev && echo debug || echo "$PROFILE") \
    && cp "target/$folder/gateway" "target/$folder/orders-service" "target/$folder/domains-service" \
        "target/$folder/tollhouse" "target/$folder/dev-world" /programs/

FROM base AS runtime
COPY --from=build /programs/ /usr/local/bin/
