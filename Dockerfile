# The three programs of overwinter, in one image. Its targets:
#   overwinter   api, worker, migrate, local-modal (the default)
#   temporal     Temporal's server and UI over one SQLite file, for trying out;
#                in production point TEMPORAL_ADDRESS at a cluster

FROM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY devserver/go.mod devserver/go.sum ./devserver/
COPY devserver/noscaling/go.mod ./devserver/noscaling/
RUN cd devserver && go mod download
# By name: nothing else of the directory, such as .env, reaches a layer or the build cache.
COPY Makefile ./
COPY activities ./activities
COPY api ./api
COPY cmd ./cmd
COPY devserver ./devserver
COPY internal ./internal
COPY worker ./worker
COPY workflows ./workflows
# The commit in `overwinter version`: docker build --build-arg COMMIT=$(git rev-parse --short=12 HEAD)
ARG COMMIT
RUN make programs

FROM debian:12-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587 AS temporal
RUN useradd --system --create-home --home-dir /data temporal
COPY --from=build /src/bin/overwinter-temporal /usr/local/bin/
USER temporal
VOLUME /data
EXPOSE 7233 8233
ENTRYPOINT ["overwinter-temporal"]
CMD ["serve", "--ip", "0.0.0.0", "--port", "7233", "--ui-port", "8233", "--db-file", "/data/temporal.db"]

# Sandboxes of the local Modal see git, npm, Node and the rest of /usr: npm fetches the agents, and Node runs
# those that need it.
FROM node:22.23.3-bookworm-slim@sha256:43ac6c60b8f89723f746e8a92ce91abd5017e627ce1ddfe4238355d3a30b772c AS overwinter
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates git curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home overwinter
COPY --from=build /src/bin/overwinter /src/bin/overwinter-runner /usr/local/bin/
# Only the local Modal needs root, which docker-compose.yml sets.
USER overwinter
EXPOSE 8080
ENTRYPOINT ["overwinter"]
CMD ["--help"]
