#!/bin/sh
# Builds both images without a registry: debootstrap makes a Debian, buildah builds Dockerfile from it. `make images` calls
# it, with PYTHON, DIST and VERSION.
set -eu
cd "$(dirname "$0")/../.."
BUILT=build/images
SUITE=${SUITE:-bookworm}
IMAGE=${IMAGE:-localhost/mm2py}
MOST_MB=200
MOST_MB_WITH_SPARK=1200

missing=
for tool in buildah debootstrap; do command -v $tool >/dev/null || missing="$missing $tool"; done
if [ -n "$missing" ]; then
  echo "Missing:$missing. Install it: apt-get install$missing" >&2; exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "debootstrap takes root. Run as root: make images" >&2; exit 1
fi
for wheel in "$DIST"/mm2py-*.whl "$DIST"/mm2py_native-*.whl; do
  if [ ! -e "$wheel" ]; then echo "$wheel is not there: make wheels builds it, where cargo is." >&2; exit 1; fi
done

# Makes a Debian in $BUILT/base-$SUITE$1 with these packages, unless its program $2 is there.
make_base() {
  base=$BUILT/base-$SUITE$1 program=$2 packages=$3
  if [ ! -e "$base$program" ]; then
    echo "Making a Debian $SUITE in $base: a minute or two."
    rm -rf "$base"
    mkdir -p $BUILT
    debootstrap --variant=minbase --include="$packages" "$SUITE" "$base" > "$BUILT/debootstrap.log" \
      || { tail -5 "$BUILT/debootstrap.log" >&2; exit 1; }
    rm -rf "$base"/var/cache/apt/archives/*.deb "$base"/var/lib/apt/lists/*
  fi
}
make_base "" /usr/bin/python3 python3,python3-venv,ca-certificates
make_base -java /usr/bin/java python3,python3-venv,ca-certificates,openjdk-17-jre-headless

# For the Python of the base. Versions are those of constraints.txt.
version=$(chroot "$BUILT/base-$SUITE" python3 -c 'import sys; print("%d%d" % sys.version_info[:2])')
rm -rf dist/image dist/image-spark
mkdir -p dist/image dist/image-spark
fetch() {
  "$PYTHON" -m pip --disable-pip-version-check --quiet download --only-binary :all: --python-version "$version" \
    --constraint constraints.txt --dest "$@"
}
fetch dist/image "$DIST"/mm2py-*.whl "$DIST"/mm2py_native-*.whl
# PySpark is published as source, and is the same for each version of Python.
pyspark=$(grep '^pyspark==' constraints.txt)
"$PYTHON" -m pip --disable-pip-version-check --quiet wheel --no-deps --wheel-dir dist/image-spark "$pyspark"
fetch dist/image-spark $(grep -E '^(py4j|pyarrow)==' constraints.txt)

export BUILDAH_ISOLATION=chroot
# Builds one target of Dockerfile from the base $1: target, tag and the most that it may have.
build() {
  base=$(buildah from scratch)
  trap 'buildah rm "$base" >/dev/null' EXIT
  buildah copy --quiet "$base" "$BUILT/base-$SUITE$1" / >/dev/null
  buildah commit --quiet "$base" "localhost/mm2py-base$1" >/dev/null
  buildah bud --quiet --format docker --pull-never --build-arg BASE="localhost/mm2py-base$1" \
    --build-arg VERSION="$VERSION" --timestamp 0 --target "$2" --tag "$3" --file deploy/images/Dockerfile . >/dev/null
  buildah rm "$base" >/dev/null
  trap - EXIT

  bytes=$(buildah images --json "$3" | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)[0]["size"])')
  echo "$3 has $bytes; at most $4 MB are allowed."
  "$PYTHON" - "$bytes" "$4" <<'CHECK'
import sys

number, unit = sys.argv[1].split()
sys.exit(float(number) * {"KB": 1e-3, "MB": 1, "GB": 1e3}[unit] > float(sys.argv[2]))
CHECK
}
build "" worker "$IMAGE:$VERSION" $MOST_MB
build -java spark "$IMAGE-spark:$VERSION" $MOST_MB_WITH_SPARK
