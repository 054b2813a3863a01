#!/bin/sh
# Builds the image of a worker without a registry: debootstrap makes a Debian, buildah builds Dockerfile from it.
# `make images` calls it, with PYTHON, DIST and VERSION.
set -eu
cd "$(dirname "$0")/../.."
BUILT=build/images
SUITE=${SUITE:-bookworm}
IMAGE=${IMAGE:-localhost/mm2py}
MOST_MB=200

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

if [ ! -e $BUILT/base-$SUITE/usr/bin/python3 ]; then
  echo "Making a Debian $SUITE in $BUILT: a minute."
  rm -rf "$BUILT/base-$SUITE"
  mkdir -p $BUILT
  debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$SUITE" "$BUILT/base-$SUITE" \
    > "$BUILT/debootstrap.log" || { tail -5 "$BUILT/debootstrap.log" >&2; exit 1; }
fi

# For the Python of the base. Versions are those of constraints.txt.
version=$(chroot "$BUILT/base-$SUITE" python3 -c 'import sys; print("%d%d" % sys.version_info[:2])')
rm -rf dist/image
mkdir -p dist/image
"$PYTHON" -m pip --disable-pip-version-check --quiet download --only-binary :all: --python-version "$version" \
  --constraint constraints.txt --dest dist/image "$DIST"/mm2py-*.whl "$DIST"/mm2py_native-*.whl

export BUILDAH_ISOLATION=chroot
base=$(buildah from scratch)
trap 'buildah rm "$base" >/dev/null' EXIT
buildah copy --quiet "$base" "$BUILT/base-$SUITE" / >/dev/null
buildah commit --quiet "$base" localhost/mm2py-base >/dev/null
buildah bud --quiet --format docker --pull-never --build-arg BASE=localhost/mm2py-base --build-arg VERSION="$VERSION" \
  --timestamp 0 --target worker --tag "$IMAGE:$VERSION" --file deploy/images/Dockerfile . >/dev/null

bytes=$(buildah images --json "$IMAGE:$VERSION" | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)[0]["size"])')
echo "$IMAGE:$VERSION has $bytes; at most $MOST_MB MB are allowed."
"$PYTHON" - "$bytes" $MOST_MB <<'CHECK'
import sys

number, unit = sys.argv[1].split()
sys.exit(float(number) * {"KB": 1e-3, "MB": 1, "GB": 1e3}[unit] > float(sys.argv[2]))
CHECK
