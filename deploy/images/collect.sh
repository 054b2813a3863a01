#!/bin/sh
# Collects into a folder what a worker needs to run: Python, /opt/mm2py, the libraries that both load, and certificates.
# The image is made of that alone, so it has no shell, no package manager and no compiler.
set -eu
to=$1
python=$(readlink -f "$(command -v python3)")
version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')

/opt/mm2py/bin/pip uninstall --quiet --yes setuptools pip
mkdir -p "$to/usr/bin" "$to/usr/lib" "$to/etc" "$to/tmp" "$to/opt"
chmod 1777 "$to/tmp"
for link in lib lib64; do
  if [ -L /$link ]; then cp -a /$link "$to/"; mkdir -p "$to/$(readlink /$link)"; fi
done

cp -a /opt/mm2py "$to/opt/"
cp "$python" "$to/usr/bin/$version"
ln -s "$version" "$to/usr/bin/python3"
mkdir -p "$to/usr/lib/$version"
(cd "/usr/lib/$version" && tar -cf - --exclude=__pycache__ --exclude=ensurepip --exclude=idlelib --exclude=tkinter \
  --exclude=turtledemo --exclude=lib2to3 --exclude=pydoc_data --exclude=test --exclude='config-*' .) \
  | tar -xf - -C "$to/usr/lib/$version"
find "$to/opt/mm2py" -type d \( -name tests -o -name include \) -prune -exec rm -rf {} +
rm -rf "$to"/opt/mm2py/bin/activate* "$to"/opt/mm2py/bin/Activate*

# ldd names the libraries; the loader of programs stands in its lines without an arrow.
find "$to/opt" "$to/usr/lib/$version" "$to/usr/bin/$version" -type f \( -name '*.so*' -o -path '*/bin/python*' \) \
  | xargs ldd 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// && $1 !~ /:$/ { print $1 }' \
  | grep -v "^$to" | sort -u | while read -r library; do
  mkdir -p "$to$(dirname "$library")"
  cp -L "$library" "$to$library"
done

cp -a --parents /etc/ssl/certs /usr/share/ca-certificates /usr/lib/ssl "$to"
printf 'root:x:0:0::/:/none\nmm2py:x:65532:65532::/tmp:/none\n' > "$to/etc/passwd"
printf 'root:x:0:\nmm2py:x:65532:\n' > "$to/etc/group"
printf 'hosts: files dns\n' > "$to/etc/nsswitch.conf"

# Compiled once: the root of a worker is not written to. Hashes instead of times, so that two builds are the same.
PYTHONHASHSEED=0 "$python" -m compileall -q -j0 --invalidation-mode unchecked-hash \
  -s "$to" "$to/usr/lib/$version" "$to/opt/mm2py/lib"
