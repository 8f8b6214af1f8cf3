#!/bin/sh
# The digests of the images that are not ours, as lines for deploy/.env:
#
#     sh deploy/images.sh >> deploy/.env
#
# A tag can be moved to another image, a digest cannot. Look at what changes before you take new ones.

set -eu

look_up() {
    digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$2")
    case $digest in
        sha256:*) echo "$1=$2@$digest" ;;
        *) echo "no digest of $2: $digest" >&2; exit 1 ;;
    esac
}

look_up PYTHON_IMAGE python:3.12-slim-bookworm
look_up DEBIAN_IMAGE debian:bookworm-slim
look_up POSTGRES_IMAGE postgres:17
look_up KAFKA_IMAGE apache/kafka:4.1.1
look_up PROMETHEUS_IMAGE prom/prometheus:v3.5.0
look_up GRAFANA_IMAGE grafana/grafana:12.1.0
