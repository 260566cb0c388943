# The image: one static program, and nothing else. `make image` builds it without a registry; with one,
#
#   docker build --build-arg VERSION=0.1.0 --build-arg REVISION=$(git rev-parse HEAD) --tag lictor:0.1.0 .

# Debian with Rust and gcc.
ARG BUILDER=rust:1.95.0-slim-bookworm
FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
ARG TARGETARCH
# The address of the documents, for messages. Default: docs, the directory.
ARG DOCUMENTS
WORKDIR /lictor
COPY . .
# Crates and what they were compiled to are kept between builds. By a file's time cargo could take what was built from another
# tree for this one's.
RUN --mount=type=cache,sharing=locked,target=/cache \
    find src crates -exec touch {} + && \
    install -D "$(CARGO_HOME=/cache/cargo CARGO_TARGET_DIR=/cache/target hack/build.sh $TARGETARCH)" /out/lictor

FROM scratch
ARG VERSION
ARG REVISION
ARG SOURCE
LABEL org.opencontainers.image.title=lictor \
      org.opencontainers.image.description="Elects one leader among the pods of a group, on Kubernetes" \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.source=$SOURCE \
      org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /out/lictor /lictor
# Nobody's on any machine; by number, so that Kubernetes can see that it is not root.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/lictor"]
